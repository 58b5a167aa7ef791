// Package hybrid computes mechanisms with a window of exact weights beside a linear tail: two
// engines, joined row by row. It computes nothing of its own: its two engines do.
package hybrid
