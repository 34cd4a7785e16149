"""How a self-written prompt may begin. Data: what is asked for more often stands here more often.

A small model left alone writes mostly small talk; what its head is served with is code, sums and questions. None of these is
taken from a test set.
"""

from __future__ import annotations

CODE = (
    "Complete the following Python function.\n\n```python\ndef",
    "Complete the Python function below.\n\n```python\ndef",
    "Complete this function and answer with the whole code.\n\n```python\ndef",
    "Complete the following Python function.\n\n```python\nfrom typing import List\n\n\ndef",
    "Finish the implementation according to its docstring.\n\n```python\ndef",
    "Implement this function.\n\n```python\ndef",
    "Write a Python function that",
    "Write a Python function to",
    "Write a function in Python which takes a list of",
    "Write a function in Python which takes a string and",
    "Write a Python class that",
    "Write a Python program that",
    "Write a unit test for",
    "Write a JavaScript function that",
    "Write a C++ program to",
    "Write an SQL query that",
    "Write a shell command that",
    "What does this code do?\n\n```python\n",
    "Find the bug in this code.\n\n```python\n",
    "Implement an algorithm in Python that",
)
MATHS = (
    "Solve this problem step by step.",
    "Solve for x:",
    "How many",
    "What is the probability that",
    "A shop sells",
    "If a train",
    "Calculate the",
)
GENERAL = (
    "Write a short story about",
    "Write an email to",
    "Write a blog post about",
    "Explain",
    "Explain in simple terms how",
    "What is the difference between",
    "What are the advantages of",
    "Why do",
    "How can I",
    "Give me a list of",
    "Summarise the following text.",
    "Rewrite the following sentence",
    "Extract the names and dates from the following text.",
    "Pretend to be",
    "Describe",
    "Compare",
)
DEFAULT_OPENINGS = (*CODE, *CODE, *MATHS, *GENERAL)
