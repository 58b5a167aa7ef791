// Package env holds the streams, the context and the ranks with which a verb runs, and the errors
// that determine its exit status.
package env

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/infile"
)

// Env holds the streams, the context and the common flags of a verb.
type Env struct {
	Context        context.Context // ends on Ctrl-C, SIGTERM and SIGHUP
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	IsTerminal     bool  // stderr is a terminal: progress may be drawn on it
	IsQuiet        bool  // --quiet
	Threads        []int // that were asked for, each once; the first are set

	Ranks     *comm.Comm // of the job that the process has joined; nil: it is alone
	isWaiting bool       // for them, and does not end by itself
}

// Notes returns the writer for progress and remarks.
func (e *Env) Notes() io.Writer {
	if e.IsQuiet {
		return io.Discard
	}
	return e.Stderr
}

// RunInterruptibly calls f and returns its error, or the error of e.Context if the
// context ends first. f then continues until the program ends.
func (e *Env) RunInterruptibly(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-e.Context.Done():
		return e.Context.Err()
	}
}

// Exit statuses.
const (
	StatusFailure     = 1
	StatusInput       = 2
	StatusInterrupted = 130
)

// InputError marks an error in the user's input.
type InputError struct{ err error }

// Error returns the text of the marked error.
func (e InputError) Error() string { return e.err.Error() }

// Unwrap returns the marked error.
func (e InputError) Unwrap() error { return e.err }

// MarkInput marks err, which may be nil, as an error in the user's input.
func MarkInput(err error) error {
	if err == nil {
		return nil
	}
	return InputError{err}
}

// InputErrorf returns a formatted error in the user's input.
func InputErrorf(format string, args ...any) error { return InputError{fmt.Errorf(format, args...)} }

// Interruption is returned when the context of Env has ended; its text says how to continue.
type Interruption struct {
	Err  error
	Text string
}

// Error returns the text of the interruption.
func (i Interruption) Error() string { return i.Text }

// Unwrap returns the error of the context.
func (i Interruption) Unwrap() error { return i.Err }

// longestError bounds the bytes of an error that is printed, which may quote a file.
const longestError = 1 << 12

// JoinLines returns the message of err on one line, escaped. A very long message loses its middle.
func JoinLines(err error) string {
	return display.Escape(infile.Elide(strings.Join(strings.Fields(err.Error()), " "), longestError))
}
