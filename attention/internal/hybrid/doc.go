// Package hybrid computes mechanisms with a window of exact weights beside a linear tail:
// two engines, joined row by row.
package hybrid
