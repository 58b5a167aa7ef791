// Package engine computes the calls and states of a Spec without a window. It chooses the form
// of a call, divides the call into the work of key heads, and keeps states between calls.
// Package headtask does the work of a key head, and package hybrid adds windows. The engine
// knows mechanisms only by their Spec, not by name.
package engine
