// Package fault marks errors with a kind that callers of the library can act on. The text of a
// marked error is that of the error itself.
package fault

import (
	"errors"
	"strings"
)

// The kinds of errors.
var (
	ErrInUse        = errors.New("in use by another owner")
	ErrDamaged      = errors.New("damaged")
	ErrUnknownField = errors.New("a field is not known")
	ErrInput        = errors.New("input refused")
)

// marked is an error of a kind.
type marked struct {
	error
	kind error
}

// Is reports whether target is the kind.
func (m marked) Is(target error) bool { return target == m.kind }

// Unwrap returns the error without the mark.
func (m marked) Unwrap() error { return m.error }

// Mark returns err, which may be nil, as an error of a kind.
func Mark(kind, err error) error {
	if err == nil {
		return nil
	}
	return marked{err, kind}
}

// MarkJSON returns the error of a decoder of JSON, which may be nil: as one of the kind ErrUnknownField
// if the JSON has a field that the decoder does not know.
func MarkJSON(err error) error {
	if err != nil && strings.HasPrefix(err.Error(), "json: unknown field ") {
		return marked{err, ErrUnknownField}
	}
	return err
}
