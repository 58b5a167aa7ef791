package farfield

import (
	"errors"
	"fmt"
	"strings"

	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/inference"
)

// Errors to test with errors.Is. A method that the model does not have returns
// errors.ErrUnsupported.
var (
	// ErrInUse is wrapped by errors about a file or folder that another process or object is
	// writing.
	ErrInUse = fault.ErrInUse
	// ErrDamaged is wrapped by errors about a file or a saved state that is not as it was written.
	ErrDamaged = fault.ErrDamaged
	// ErrMismatch is wrapped by errors about a saved state, session or stream that is whole but
	// belongs to something else: another mechanism, setting, element type, parameters, model, input or
	// version.
	ErrMismatch = fault.ErrMismatch
	// ErrUnknownField is wrapped by errors about a configuration with a field that this version
	// does not know.
	ErrUnknownField = fault.ErrUnknownField
	// ErrInput is wrapped by errors about a text, a token, a slice, a name or an option that a function of
	// this package or pretrained does not accept. Other arguments are needed: the folder is not at
	// fault.
	ErrInput = fault.ErrInput
	// ErrTruncated is reported by every *TruncatedError.
	ErrTruncated = errors.New("longer than the model reads")
	// ErrClosed is returned by methods of a model after Close.
	ErrClosed = errors.New("farfield: the model is closed")
)

// UnsupportedError is returned by a method that the model does not have. errors.Is(err,
// errors.ErrUnsupported) reports true for it.
type UnsupportedError struct {
	Method string   // the method that was called
	Kind   string   // what the model is, as in Info
	Can    []string // the methods that it has
	Err    error    // why the model does not have the method
}

// Error returns a message that says what the model is and what it can do.
func (e *UnsupportedError) Error() string {
	can := "nothing"
	if len(e.Can) > 0 {
		can = strings.Join(e.Can, ", ")
	}
	return fmt.Sprintf("%s: %v; the model is a %s, which has: %s", e.Method, e.Err, e.Kind, can)
}

// Unwrap returns the reason.
func (e *UnsupportedError) Unwrap() error { return e.Err }

// Is reports whether target is errors.ErrUnsupported.
func (e *UnsupportedError) Is(target error) bool { return target == errors.ErrUnsupported }

// TruncatedError says which inputs of a call were longer than the model can read. The call has
// returned results, too: those of the parts that were read.
type TruncatedError struct {
	Inputs []int // indexes of the inputs
}

// Error returns a message with the index of the first such input.
func (e *TruncatedError) Error() string {
	if len(e.Inputs) == 1 {
		return fmt.Sprintf("input %d is longer than the model reads: its result is of a part", e.Inputs[0])
	}
	return fmt.Sprintf("%d inputs, the first of them %d, are longer than the model reads: their results are of parts", len(e.Inputs), e.Inputs[0])
}

// Is reports whether target is ErrTruncated.
func (e *TruncatedError) Is(target error) bool { return target == ErrTruncated }

// add adds input i if it is truncated.
func (e *TruncatedError) add(i int, isTruncated bool) {
	if isTruncated {
		e.Inputs = append(e.Inputs, i)
	}
}

// orNil returns e, or nil if no input is truncated.
func (e *TruncatedError) orNil() error {
	if len(e.Inputs) == 0 {
		return nil
	}
	return e
}

// TextError is the error for one of several texts or lines.
type TextError struct {
	Text int // index of the text
	Err  error
}

// Error returns a message with the index of the text.
func (e *TextError) Error() string { return fmt.Sprintf("text %d: %v", e.Text, e.Err) }

// Unwrap returns the error of the text.
func (e *TextError) Unwrap() error { return e.Err }

// textError returns err with the number of its text, if it has one.
func textError(err error) error {
	var one *inference.TextError
	if errors.As(err, &one) {
		return &TextError{one.Text, one.Err}
	}
	return err
}
