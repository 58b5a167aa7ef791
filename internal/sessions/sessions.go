// Package sessions keeps the states of one decoder for many clients: sessions that survive the
// process, the prefixes that they share, and a fair queue of requests for the model. Package
// internal/serve has the HTTP of it, and package model the layers.
package sessions

import (
	"errors"
	"fmt"
	"time"

	"github.com/farfield-ml/farfield/internal/generate"
	"github.com/farfield-ml/farfield/model"
)

// Options holds the model and the limits of a Manager. A limit of 0 means its default, which is in
// parentheses.
type Options struct {
	Model     *model.Model
	Identity  string  // precision and hash of weights, configuration and tokenizer, as package inference computes it; snapshots with another one are refused
	EndTokens []int32 // ids of tokens that end a text

	Store  string // folder of the store; "": sessions are in memory only
	Memory int64  // most bytes of states and prefixes in memory (1 GiB)
	Disk   int64  // most bytes of snapshots on disk (8 GiB)

	MaxSessions int   // most sessions (1024)
	MaxTokens   int64 // most tokens of a session (1 << 20)
	MaxQueue    int   // most requests that run or wait (256)
	MaxBatch    int   // most tokens in one packed step (256)

	// Owners is the number of owners that requests may have. If there are two or more, an owner
	// may hold at most as many sessions as are still free and, without a Store, at most as many
	// bytes of Memory as are still free. Owners that take all they can thus get equal parts.
	Owners int

	// SessionTTL is the time without a request after which a session in memory only may be removed
	// to make room for others, the longest unused first; 0: 30 minutes. Sessions of a store do not
	// expire.
	SessionTTL time.Duration

	// Notify is called with a line for the operator when the Manager has to give something up to
	// continue; it may be nil. It may be called concurrently, must be quick, and must not call the
	// Manager.
	Notify func(line string)

	beforeWrite func() error // for tests: returns the error of a write; nil: none
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

// Errors of a Manager, to test with errors.Is.
var (
	ErrUnknown = errors.New("session: unknown id")
	ErrBusy    = errors.New("session: another request is writing it")
	ErrForeign = errors.New("snapshot: of another model, tokenizer or precision")
	ErrFull    = errors.New("full")
	ErrTooLong = errors.New("too many tokens")
	ErrDamaged = errors.New("session: its files are damaged")
	ErrClosed  = errors.New("sessions: closed")
)

// FieldError is returned for an invalid field of a request.
type FieldError struct {
	Field   string
	Message string
}

// Error returns the name of the field and the message.
func (e *FieldError) Error() string { return e.Field + ": " + e.Message }

// fieldErrorf returns a *FieldError.
func fieldErrorf(field, format string, args ...any) error {
	return &FieldError{field, fmt.Sprintf(format, args...)}
}

// Info describes a session.
type Info struct {
	ID     string
	Tokens int64     // tokens that have been acknowledged
	Bytes  int64     // memory of the state, or size of its snapshot while it is on disk
	IsBusy bool      // a request is using it and may add tokens; set by Get and List
	Used   time.Time // when its last request ended; zero: before Open; set by Get and List
}

// Sampling says how a token is drawn from logits.
type Sampling = generate.Sampling

// Draw says which tokens to draw. Token i of a request uses random number i of the seed, so equal
// sessions, seeds and fields give equal ids.
type Draw struct {
	Sampling
	MaxTokens int // most tokens to draw
	StopAtEnd bool
	// Stop reports whether the text ends after the drawn ids; nil: never. It is called between two
	// steps of the model, must be quick, and must not call the Manager.
	Stop func(ids []int32) bool

	// Shape, Drawn and Prompt follow the logits; each may be nil. Shape changes the logits [vocab]
	// of the next token before it is drawn; ids are the tokens drawn so far, and an error ends the
	// request. Drawn is called with the token that was drawn. Prompt is called with the logits
	// after token i of the prompt of Complete; if it is set, the prompt is read token by token
	// from its beginning. All three are called between two steps of the model, must be quick, and
	// must not call the Manager.
	Shape  func(ids []int32, logits []float32) error
	Drawn  func(id int32)
	Prompt func(i int, logits []float32)

	// Kept returns how many of the drawn tokens a session keeps if ctx ends before the last one;
	// nil: none, and the session stays as it was.
	Kept func() int
}

// Reasons for which a Result ends.
const (
	Length  = "length" // Draw.MaxTokens tokens were drawn
	Stopped = "stop"   // an end token was drawn, or Draw.Stop reported true
)

// Result is the outcome of Generate or Complete.
type Result struct {
	IDs    []int32 // drawn tokens, with a final end token
	Info   Info
	Reason string // Length or Stopped
	Reused int64  // tokens of the prompt whose state was already known
}

// Stats counts the states and the work of a Manager.
type Stats struct {
	Sessions    int   // number of sessions
	Running     int   // requests that run or wait
	StateBytes  int64 // bytes of the states of sessions in memory
	PrefixBytes int64 // bytes of prefixes in memory, with those that wait to be written to disk
	WorkBytes   int64 // bytes of states of running requests beyond StateBytes, and bytes of Reserve
	DiskBytes   int64 // bytes of snapshots on disk

	Rounds       int64 // packed steps of the model
	TokensRead   int64 // tokens that the model has read, of prompts and drawn ones
	TokensReused int64 // tokens of prompts whose state was already known
	TokensDrawn  int64
	Replayed     int64 // tokens that were read again, from the log
	Restored     int64 // states read from disk
	Damaged      int64 // snapshots refused because their bytes are damaged
	Dropped      int64 // snapshots removed because the disk was full

	Expired         int64 // sessions removed to make room for others
	Recomputed      int64 // states that made room and were computed again, of sessions in memory only
	StoreErrors     int64 // failed writes of the store
	DamagedSessions int   // records refused because their bytes are damaged, until they are deleted
}
