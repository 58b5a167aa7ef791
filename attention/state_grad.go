package attention

// StateGrad is the gradient of a State. Backward sets it for the initial state (Grads.DInit)
// and reads it for the final state (Grads.DFinal). The zero value is ready for use, and memory
// is reused.
type StateGrad struct {
	// Own holds the gradient in a type that only the mechanism knows, with the layout of its
	// states; nil if nothing has been computed.
	Own any
}
