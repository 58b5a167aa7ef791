package serve

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/sessions"
)

// writePart is the bytes that a client has to read within Options.WriteTime.
const writePart = 1 << 18

// countedWriter remembers the status of an answer, and ends a client that does not read.
type countedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	time    time.Duration // in which a part is read
	status  int           // 0: nothing is sent
	clock   func() time.Time
	first   time.Time // when the header was sent
	written int64     // bytes of the answer
	body    int64     // bytes of the request's body in Server.bodies
	place   place     // of the request
	isBegun bool      // the request's body is read
	isEnded bool      // nothing more of the body comes
}

// newCountedWriter returns a writer over w.
func newCountedWriter(w http.ResponseWriter, d time.Duration, clock func() time.Time) *countedWriter {
	return &countedWriter{ResponseWriter: w, control: http.NewResponseController(w), time: d, clock: clock}
}

// begin keeps the status and the time of the answer's beginning.
func (c *countedWriter) begin(status int) {
	if c.status == 0 {
		c.status, c.first = status, c.clock()
	}
}

// WriteHeader sends the status.
func (c *countedWriter) WriteHeader(status int) {
	c.begin(status)
	c.setDeadline()
	c.ResponseWriter.WriteHeader(status)
}

// Write sends the next part of the answer.
func (c *countedWriter) Write(p []byte) (n int, err error) {
	c.begin(http.StatusOK)
	for {
		c.setDeadline()
		part, err := c.ResponseWriter.Write(p[:min(len(p), writePart)])
		n, c.written = n+part, c.written+int64(part)
		p = p[part:]
		if err != nil || len(p) == 0 {
			return n, err
		}
	}
}

// Unwrap returns the underlying writer, for http.ResponseController.
func (c *countedWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// setDeadline bounds the time of the next write.
func (c *countedWriter) setDeadline() {
	// A writer without deadlines, as in tests, has no slow clients.
	_ = c.control.SetWriteDeadline(time.Now().Add(c.time))
}

// events writes server-sent events. The first event sends the header.
type events struct {
	w       http.ResponseWriter
	isBegun bool
}

// send writes v as an event. It returns an error if the client is gone or does not read.
func (e *events) send(v any) error {
	data, err := atomicfile.MarshalJSON(v)
	if err != nil {
		return err
	}
	return e.write(data)
}

// write writes the data of an event, which has no line break.
func (e *events) write(data []byte) error {
	if !e.isBegun {
		e.isBegun = true
		e.w.Header().Set("Content-Type", "text/event-stream")
		e.w.Header().Set("X-Accel-Buffering", "no")
		e.w.WriteHeader(http.StatusOK)
	}
	event := make([]byte, 0, len(data)+8)
	event = append(append(append(event, "data: "...), data...), "\n\n"...)
	if _, err := e.w.Write(event); err != nil {
		return err
	}
	return http.NewResponseController(e.w).Flush()
}

// end writes the last event.
func (e *events) end() error { return e.write([]byte("[DONE]")) }

// tokenQueue holds drawn tokens until a client reads them.
type tokenQueue struct {
	mu     sync.Mutex
	ids    []int32
	signal chan struct{} // has an element if there are tokens
}

// push adds a token without waiting.
func (q *tokenQueue) push(id int32) error {
	q.mu.Lock()
	q.ids = append(q.ids, id)
	q.mu.Unlock()
	select {
	case q.signal <- struct{}{}:
	default:
	}
	return nil
}

// take returns the tokens of the queue and empties it.
func (q *tokenQueue) take() []int32 {
	q.mu.Lock()
	defer q.mu.Unlock()
	ids := q.ids
	q.ids = nil
	return ids
}

// drawFunc draws tokens, as Sessions.Generate does.
type drawFunc func(ctx context.Context, emit func(int32) error) (sessions.Result, error)

// streamTokens runs draw and calls each with its tokens as they come. each may be slow: draw
// does not wait for it. An error of each ends draw. streamTokens returns when both have ended,
// with the error of either.
func streamTokens(ctx context.Context, draw drawFunc, each func(id int32) error) (sessions.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q := &tokenQueue{signal: make(chan struct{}, 1)}
	var result sessions.Result
	var drawErr error
	done := make(chan struct{})
	go func() {
		defer close(done)
		result, drawErr = draw(ctx, q.push)
	}()
	for isDone := false; ; {
		for _, id := range q.take() {
			if err := each(id); err != nil {
				cancel()
				<-done
				return result, err
			}
		}
		if isDone {
			return result, drawErr
		}
		select {
		case <-q.signal:
		case <-done:
			isDone = true
		}
	}
}

// sendStream calls stream and ends its events. An error before the first event is the answer's
// error; a later one is an event.
func (s *Server) sendStream(w http.ResponseWriter, stream func(e *events) error) error {
	e := &events{w: w}
	err := stream(e)
	if err == nil {
		return e.end()
	}
	if e.isBegun {
		// The client may be gone, which no event can say.
		_ = e.send(asAPIError(err, s.stopping.Load()).body())
	}
	return err
}
