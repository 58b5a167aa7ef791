package stream

import "github.com/farfield-ml/farfield/internal/lock"

// HeldError is the error for a file of a stream that another run or process holds open. Use
// errors.As to test for it. The file becomes free when its owner closes it or its process ends.
//
// Fields and methods:
//
//	type HeldError struct {
//		Path string // folder or file that is in use
//		PID  int    // process of the owner; 0: unknown
//	}
//	func (e *HeldError) Error() string
type HeldError = lock.HeldError
