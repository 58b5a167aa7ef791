// Package engine computes the calls and states of a Spec without a window: it chooses the
// form of a call, makes head tasks of it, and keeps states between calls.
package engine
