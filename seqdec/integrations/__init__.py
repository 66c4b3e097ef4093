"""Methods for other libraries, which are extras: `pip install 'seqdec[full,optuna]'`."""
