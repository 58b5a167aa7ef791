package stream

import "github.com/farfield-ml/farfield/internal/lock"

// HeldError is the error of a file of a stream that another owner has, for errors.As. It ends when
// that owner closes its files or its process ends.
//
// Fields and methods:
//
//	type HeldError struct {
//		Path string // folder or file that is in use
//		PID  int    // process of the owner; 0: unknown
//	}
//	func (e *HeldError) Error() string
type HeldError = lock.HeldError
