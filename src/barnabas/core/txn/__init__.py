"""The transaction coordinator's rules: a decide-and-replay machine over the records of ``__transaction_state``."""
