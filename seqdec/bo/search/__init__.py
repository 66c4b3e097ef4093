"""Where the acquisition is maximized: candidates, gradient ascent, restricted spaces, a trust region."""
