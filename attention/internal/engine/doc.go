// Package engine computes the calls and states of a Spec without a window: it chooses the form of a
// call, divides it into the work of key heads, and keeps states between calls. One key head is computed in
// headtask, and windows beside a linear tail in hybrid. No mechanism has a name here.
package engine
