// Package hybrid implements mechanisms with a window of exact weights beside a linear tail. One
// engine computes the window and another the tail; this package joins their rows.
package hybrid
