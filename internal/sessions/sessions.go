// Package sessions keeps the states of one decoder for many callers: sessions that survive the
// process, the prefixes that they share, and a fair queue for the model. HTTP lives in
// internal/serve, and the layers of a model in package model.
package sessions

import (
	"errors"
	"fmt"
	"time"

	"github.com/farfield-ml/farfield/internal/generate"
	"github.com/farfield-ml/farfield/model"
)

// Options holds the model and the limits of a Manager. A limit of 0 is the default.
type Options struct {
	Model     *model.Model
	Identity  string  // precision and hash of weights, configuration and tokenizer, as Identity of package inference; snapshots of others are refused
	EndTokens []int32 // tokens that end a text

	Store  string // folder of the states; "": memory alone
	Memory int64  // bytes of states and prefixes in memory (1 GiB)
	Disk   int64  // bytes of snapshots on disk (8 GiB)

	MaxSessions int   // sessions held (1024)
	MaxTokens   int64 // tokens of a session (1 << 20)
	MaxQueue    int   // requests that run or wait (256)
	MaxBatch    int   // tokens of one packed step (256)

	// Owners is the number of owners that requests may have. With two or more, an owner has a share of the sessions,
	// and without a Store of Memory: it may hold as much as is free.
	Owners int

	// SessionTTL is the time without a request after which a session in memory alone may make room for others,
	// those that were used the longest ago first; 0: 30 minutes. Sessions of a store do not expire.
	SessionTTL time.Duration

	// Notify is called with a line for the operator when the Manager gives something up to go on; nil: nobody
	// is told. It may be called concurrently, must be quick, and must not call the Manager.
	Notify func(line string)

	beforeWrite func() error // of tests: the error of a write; nil: none
}

// Defaults of Options.
const (
	defaultMemory      = 1 << 30
	defaultDisk        = 8 << 30
	defaultMaxSessions = 1024
	defaultMaxTokens   = 1 << 20
	defaultMaxQueue    = 256
	defaultMaxBatch    = 256
	defaultSessionTTL  = 30 * time.Minute
)

// Errors of a Manager, for errors.Is.
var (
	ErrUnknown = errors.New("session: unknown id")
	ErrBusy    = errors.New("session: another request is writing it")
	ErrForeign = errors.New("snapshot: of another model, tokenizer or precision")
	ErrFull    = errors.New("full")
	ErrTooLong = errors.New("too many tokens")
	ErrDamaged = errors.New("session: its files are damaged")
	ErrClosed  = errors.New("sessions: closed")
)

// FieldError is the error of an invalid field of a request.
type FieldError struct {
	Field   string
	Message string
}

// Error returns the field and the message.
func (e *FieldError) Error() string { return e.Field + ": " + e.Message }

// fieldErrorf returns a *FieldError.
func fieldErrorf(field, format string, args ...any) error {
	return &FieldError{field, fmt.Sprintf(format, args...)}
}

// Info describes a session.
type Info struct {
	ID     string
	Tokens int64     // acknowledged tokens
	Bytes  int64     // memory of the state, or size of its snapshot while it is on disk
	IsBusy bool      // a request holds it, and may add tokens; of Get and List
	Used   time.Time // when its last request ended; zero: before the Manager was opened; of Get and List
}

// Sampling holds the settings for drawing a token from logits.
type Sampling = generate.Sampling

// Draw describes the tokens to draw. Token i of a request uses random number i of the
// seed: same session, seed and fields give the same ids.
type Draw struct {
	Sampling
	MaxTokens int // tokens to draw at most
	StopAtEnd bool
	// Stop reports whether the drawn ids end the text; nil: never. It runs between two
	// steps of the model and must be quick. It must not call the Manager.
	Stop func(ids []int32) bool

	// Shape changes the logits [vocab] of the next token before it is drawn, and Drawn is called with the token; nil:
	// nothing happens. ids are those that are drawn so far. An error of Shape ends the request. Prompt is called with
	// the logits after token i of the prompt of Complete, which is then read token by token from its beginning. They
	// run between two steps of the model, and must be quick. They must not call the Manager.
	Shape  func(ids []int32, logits []float32) error
	Drawn  func(id int32)
	Prompt func(i int, logits []float32)

	// Kept returns the number of drawn tokens that a session keeps where ctx ends before the last; nil: none, and the
	// session stays as it was.
	Kept func() int
}

// Reasons of the end of a Result.
const (
	Length  = "length" // Draw.MaxTokens tokens are drawn
	Stopped = "stop"   // an end token is drawn, or Draw.Stop reports true
)

// Result is the outcome of Generate or Complete.
type Result struct {
	IDs    []int32 // drawn tokens, with the end token
	Info   Info
	Reason string // Length or Stopped
	Reused int64  // tokens of the prompt whose state was known
}

// Stats counts states and work of a Manager.
type Stats struct {
	Sessions    int   // sessions held
	Running     int   // requests that run or wait
	StateBytes  int64 // of sessions, in memory
	PrefixBytes int64 // of prefixes, in memory, with those that wait for the disk
	WorkBytes   int64 // of states of running requests, beyond StateBytes, and of Reserve
	DiskBytes   int64 // of snapshots on disk

	Rounds       int64 // packed steps
	TokensRead   int64 // tokens that went through the model, of prompts and drawn
	TokensReused int64 // tokens of prompts whose state was known
	TokensDrawn  int64
	Replayed     int64 // tokens read a second time, from the log
	Restored     int64 // states read from disk
	Damaged      int64 // snapshots refused because of their bytes
	Dropped      int64 // snapshots removed because the disk was full

	Expired         int64 // sessions that made room for others
	Recomputed      int64 // states of sessions in memory alone that made room, and are computed again
	StoreErrors     int64 // writes of the store that failed
	DamagedSessions int   // records refused because of their bytes, until they are deleted
}
