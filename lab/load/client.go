package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"
)

// client sends requests one after another.
type client struct {
	t      *target
	o      *options
	card   card
	random *rand.Rand
	acts   []func()

	sessions []*session
	checks   []check // without sessions
	forks    []check
	answers  int // answers that could be compared

	counts   map[outcome]int64
	tokens   int64
	first    times // to the first token of a stream
	gap      times // between two tokens of a stream
	longest  times // the longest gap of each stream
	checked  int
	failures []string
}

// session is a session of the server.
type session struct {
	id     string
	tokens int64
}

// check is an answer that is compared with the same request alone.
type check struct {
	request request
	text    string
	fork    string // a session for the request alone; "": none
}

// Limits of a client.
const (
	maxSessions = 4 // sessions
	maxChecks   = 48
	maxForks    = 8
	requestTime = 2 * time.Minute
)

// request is a request and the statuses that it may have besides 429.
type request struct {
	kind, method, path string
	body               any // []byte: sent as it is
	wanted             []int
	isStream           bool
	leaveAfter         int           // events after which the client goes away; 0: never
	pause              time.Duration // between two reads of a stream
}

// event is an event of a stream, or a whole answer.
type event struct {
	ID      any
	Text    string
	IDs     []int32
	Tokens  int64
	Choices []struct {
		Text    string
		Message struct{ Content string }
		Delta   struct{ Content string }
	}
	Data  json.RawMessage
	Usage struct {
		Completion int64 `json:"completion_tokens"`
	}
	Error *struct{ Message string }
}

// textOf returns the text of e.
func (e *event) textOf() string {
	if len(e.Choices) == 0 {
		return e.Text + string(e.Data)
	}
	return e.Choices[0].Text + e.Choices[0].Message.Content + e.Choices[0].Delta.Content
}

// answer is what a request gave.
type answer struct {
	status int // 0: the client went away
	text   string
	event  event  // the whole answer, or the last event
	data   []byte // of an answer that is no stream
}

// fail records a failure.
func (c *client) fail(q *request, format string, args ...any) {
	c.failures = append(c.failures, q.kind+": "+fmt.Sprintf(format, args...))
}

// ask sends q and counts its answer. A status that is not wanted is a failure.
func (c *client) ask(q *request) answer {
	a := c.send(q)
	c.counts[outcome{q.kind, a.status}]++
	if a.status != 0 && a.status != http.StatusTooManyRequests && !slices.Contains(q.wanted, a.status) {
		c.fail(q, "status %d: %.200s", a.status, a.data)
	}
	return a
}

// send sends q and reads the answer.
func (c *client) send(q *request) (a answer) {
	ctx, cancel := context.WithTimeout(context.Background(), requestTime)
	defer cancel()
	data, isRaw := q.body.([]byte)
	if !isRaw && q.body != nil {
		data, _ = json.Marshal(q.body) // maps of strings and numbers
	}
	r, err := http.NewRequestWithContext(ctx, q.method, c.t.url+q.path, bytes.NewReader(data))
	if err != nil {
		c.fail(q, "%v", err)
		return a
	}
	begin := time.Now()
	h, err := http.DefaultClient.Do(r)
	if err != nil {
		c.fail(q, "%v", err)
		return a
	}
	defer h.Body.Close()
	a.status = h.StatusCode
	if q.isStream && a.status == http.StatusOK {
		c.readStream(q, h.Body, &a, begin)
		return a
	}
	if a.data, err = io.ReadAll(h.Body); err != nil {
		c.fail(q, "%v", err)
		return a
	}
	if strings.HasPrefix(h.Header.Get("Content-Type"), "application/json") {
		if err := json.Unmarshal(a.data, &a.event); err != nil {
			c.fail(q, "%v", err)
		}
		a.text = a.event.textOf()
	}
	c.tokens += int64(len(a.event.IDs)) + a.event.Usage.Completion
	return a
}

// readStream reads the events of a stream.
func (c *client) readStream(q *request, body io.Reader, a *answer, begin time.Time) {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 16<<20)
	count, last, isWhole := 0, begin, false
	var longest time.Duration
	for lines.Scan() {
		text, isData := strings.CutPrefix(lines.Text(), "data: ")
		switch {
		case !isData:
			continue
		case text == "[DONE]":
			isWhole = true
			continue
		}
		var e event
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			c.fail(q, "%v in %.100s", err, text)
			return
		}
		if e.Error != nil {
			c.fail(q, "the stream has an error: %s", e.Error.Message)
			return
		}
		a.event = e
		if e.IDs != nil {
			a.text = e.Text
			continue
		}
		a.text += e.textOf()
		count++
		c.tokens++
		if q.leaveAfter > 0 && count >= q.leaveAfter {
			a.status = 0
			return
		}
		if q.pause > 0 {
			time.Sleep(q.pause)
			continue
		}
		now := time.Now()
		if count == 1 {
			c.first.add(now.Sub(begin))
		} else {
			c.gap.add(now.Sub(last))
			longest = max(longest, now.Sub(last))
		}
		last = now
	}
	if longest > 0 {
		c.longest.add(longest)
	}
	if !isWhole {
		c.fail(q, "the stream ends after %d events: %v", count, lines.Err())
	}
}

// keep adds an answer to a list of at most limit. A full list loses an element at random, whose
// session is deleted.
func (c *client) keep(list []check, limit int, k check) []check {
	if len(list) < limit {
		return append(list, k)
	}
	i := c.random.IntN(limit)
	if list[i].fork != "" {
		c.deleteSession(&session{id: list[i].fork})
	}
	list[i] = k
	return list
}

// isCompared reports whether the next answer is one to compare.
func (c *client) isCompared() bool {
	c.answers++
	return c.answers%c.o.checkEvery == 0
}

// checkAlone sends the kept requests while no other client sends any.
func (c *client) checkAlone(context.Context) {
	for _, k := range append(c.checks, c.forks...) {
		q := k.request
		if k.fork != "" {
			q.path = "/v1/sessions/" + k.fork + "/generate"
			c.sessions = append(c.sessions, &session{id: k.fork})
		}
		q.kind, q.pause = "alone", 0
		a := c.ask(&q)
		c.checked++
		if a.text != k.text {
			c.fail(&k.request, "text is %.200q, alone %.200q", k.text, a.text)
		}
	}
	c.checks, c.forks = nil, nil
}

// deleteAll deletes the sessions of the client.
func (c *client) deleteAll(context.Context) {
	for _, s := range c.sessions {
		c.deleteSession(s)
	}
	c.sessions = nil
}
