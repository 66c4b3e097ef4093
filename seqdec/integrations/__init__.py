"""Methods for other libraries, each an extra: `pip install 'seqdec[optuna]'`."""
