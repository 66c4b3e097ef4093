"""The algorithm boxes as printed, in plain NumPy float64: the oracle that the filters are held to.

Every function takes the linearised model at the previous mean and returns the new covariance factors and the steps of
the mean.
"""

import numpy as np


def q_r(*blocks):
    """R factor of the QR of the row stack."""
    return np.linalg.qr(np.concatenate(blocks), mode="r")


def p_d(rank, inflation, *blocks):
    """diag(sqrt(s^2 + a)) V_d^T from the SVD of the row stack."""
    _, s, vt = np.linalg.svd(np.concatenate(blocks), full_matrices=False)
    return np.sqrt(s[:rank, None] ** 2 + inflation) * vt[:rank]


def root(cov):
    """Upper triangular R with R^T R = cov."""
    return np.linalg.cholesky(cov).T


def solve(s_half, rhs):
    """(s_half^T s_half)^{-1} rhs through two triangular solves."""
    return np.linalg.solve(s_half, np.linalg.solve(s_half.T, rhs))


def ekf(sigma, jac, noise, eps, q):
    sigma = sigma + q * np.eye(len(sigma))
    s = jac @ sigma @ jac.T + noise
    gain = sigma @ jac.T @ np.linalg.inv(s)
    left = np.eye(len(sigma)) - gain @ jac
    return left @ sigma @ left.T + gain @ noise @ gain.T, gain @ eps


def lrkf(c, jac, noise, eps, q):
    r_half = root(noise)
    s_half = q_r(c @ jac.T, np.sqrt(q) * jac.T, r_half)
    v = solve(s_half, jac)
    gain_t = v @ c.T @ c + q * v
    c_new = p_d(len(c), q, c @ (np.eye(c.shape[1]) - gain_t.T @ jac).T, r_half @ gain_t)
    return c_new, gain_t.T @ eps


def hilofi(sl_half, c, jac_l, jac_h, noise, eps, q_l, q_h):
    r_half = root(noise)
    s_half = q_r(sl_half @ jac_l.T, np.sqrt(q_l) * jac_l.T, c @ jac_h.T, np.sqrt(q_h) * jac_h.T, r_half)
    v_h, v_l = solve(s_half, jac_h), solve(s_half, jac_l)
    gain_h = v_h @ c.T @ c + q_h * v_h
    gain_l = v_l @ sl_half.T @ sl_half + q_l * v_l
    c_new = p_d(len(c), q_h, c @ (np.eye(c.shape[1]) - gain_h.T @ jac_h).T, r_half @ gain_h)
    sl_new = q_r(sl_half @ (np.eye(len(sl_half)) - gain_l.T @ jac_l).T, r_half @ gain_l)
    return sl_new, c_new, gain_l.T @ eps, gain_h.T @ eps


def lolofi(c_l, c, jac_l, jac_h, noise, eps, q_l, q_h):
    r_half = root(noise)
    s_half = q_r(c_l @ jac_l.T, np.sqrt(q_l) * jac_l.T, c @ jac_h.T, np.sqrt(q_h) * jac_h.T, r_half)
    v_h, v_l = solve(s_half, jac_h), solve(s_half, jac_l)
    gain_h = v_h @ c.T @ c + q_h * v_h
    gain_l = v_l @ c_l.T @ c_l + q_l * v_l
    c_new = p_d(len(c), q_h, c @ (np.eye(c.shape[1]) - gain_h.T @ jac_h).T, r_half @ gain_h)
    cl_new = p_d(len(c_l), q_l, c_l @ (np.eye(c_l.shape[1]) - gain_l.T @ jac_l).T, r_half @ gain_l)
    return cl_new, c_new, gain_l.T @ eps, gain_h.T @ eps
