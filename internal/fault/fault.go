// Package fault marks errors with a kind, by which callers of the library can act. A mark does not
// change the message of an error.
package fault

import "errors"

// The kinds of errors.
var (
	ErrInUse        = errors.New("in use by another owner")
	ErrDamaged      = errors.New("damaged")
	ErrMismatch     = errors.New("of something else")
	ErrUnknownField = errors.New("a field is not known")
	ErrInput        = errors.New("input refused")
)

// marked is an error of a kind.
type marked struct {
	error
	kind error
}

// Is reports whether target is the kind of the error.
func (m marked) Is(target error) bool { return target == m.kind }

// Unwrap returns the error without the mark.
func (m marked) Unwrap() error { return m.error }

// Mark returns err marked with a kind, or nil if err is nil.
func Mark(kind, err error) error {
	if err == nil {
		return nil
	}
	return marked{err, kind}
}
