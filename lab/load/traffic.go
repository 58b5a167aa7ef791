package load

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// newClient returns client number i.
func newClient(t *target, o *options, of card, i int) *client {
	c := &client{t: t, o: o, card: of, random: rand.New(rand.NewPCG(o.seed, uint64(i))), counts: map[outcome]int64{}}
	add := func(weight int, act func()) {
		for range weight {
			c.acts = append(c.acts, act)
		}
	}
	add(2, c.sendBadBody)
	if of.Details.HasSessions {
		add(6, func() { c.complete("completion", "/v1/completions", map[string]any{"prompt": c.drawText()}) })
		add(12, c.useSession)
		add(1, c.leaveSession)
	}
	if of.Details.HasChat {
		add(6, func() {
			c.complete("chat", "/v1/chat/completions", map[string]any{"messages": []map[string]string{{"role": "user", "content": c.drawText()}}})
		})
	}
	if of.Details.Embeds {
		add(4, func() { c.askOfTexts("embeddings", "/v1/embeddings") })
	}
	if len(of.Details.Classes) > 0 {
		add(4, func() { c.askOfTexts("classes", "/v1/classify") })
	}
	return c
}

// run sends requests until ctx ends. A request that has begun is finished.
func (c *client) run(ctx context.Context) {
	for ctx.Err() == nil {
		c.acts[c.random.IntN(len(c.acts))]()
		if c.o.pause > 0 {
			time.Sleep(rand.N(c.o.pause))
		}
	}
}

// words make the texts. Some texts begin alike, so that prefixes are shared.
var words = strings.Fields("one day a little girl named Lily went to the park and saw a big red ball the dog wanted to play with it too but the ball was in a tree so they asked mom for help")

// drawText returns a text of 1 to 200 words.
func (c *client) drawText() string {
	var b strings.Builder
	if c.random.IntN(2) == 0 {
		for i := range 60 * (1 + c.random.IntN(3)) {
			b.WriteString(words[i*7%len(words)] + " ")
		}
	}
	for range 1 + c.random.IntN(20) {
		b.WriteString(words[c.random.IntN(len(words))] + " ")
	}
	return b.String()
}

// drawFields adds the fields of a draw to a body.
func (c *client) drawFields(body map[string]any) {
	body["max_tokens"], body["seed"], body["temperature"] = 1+c.random.IntN(48), c.random.IntN(1<<20), []float64{0, 0.8, 1}[c.random.IntN(3)]
}

// shapeStream makes q a stream in half of the cases: read slowly, left early, or neither.
func (c *client) shapeStream(q *request, body map[string]any) {
	if c.random.IntN(2) == 0 {
		return
	}
	body["stream"], q.isStream = true, true
	switch c.random.IntN(8) {
	case 0:
		q.kind, q.pause = q.kind+", slow reader", 20*time.Millisecond
	case 1:
		q.kind, q.leaveAfter = q.kind+", left", 1+c.random.IntN(4)
		body["max_tokens"] = 256
	default:
		q.kind += ", stream"
	}
}

// complete sends a completion.
func (c *client) complete(kind, path string, body map[string]any) {
	q := &request{kind: kind, method: "POST", path: path, body: body, wanted: []int{200}}
	c.drawFields(body)
	c.shapeStream(q, body)
	if a := c.ask(q); a.status == 200 && c.isCompared() {
		c.checks = c.keep(c.checks, maxChecks, check{*q, a.text, ""})
	}
}

// askOfTexts sends texts to an endpoint that answers each.
func (c *client) askOfTexts(kind, path string) {
	texts := make([]string, 1+c.random.IntN(4))
	for i := range texts {
		texts[i] = c.drawText()
	}
	q := &request{kind: kind, method: "POST", path: path, body: map[string]any{"input": texts}, wanted: []int{200}}
	if a := c.ask(q); a.status == 200 && c.isCompared() {
		c.checks = c.keep(c.checks, maxChecks, check{*q, a.text, ""})
	}
}

// createSession creates a session. It returns nil if the server has no place.
func (c *client) createSession() *session {
	a := c.ask(&request{kind: "create", method: "POST", path: "/v1/sessions", body: map[string]any{"text": c.drawText()}, wanted: []int{201}})
	return c.hold(&a, 0)
}

// hold keeps the session of an answer, which needs a number of tokens; 0: any. It returns nil if
// there is none.
func (c *client) hold(a *answer, tokens int64) *session {
	id, ok := a.event.ID.(string)
	if a.status != 201 || !ok {
		return nil
	}
	if tokens > 0 && a.event.Tokens != tokens {
		c.failures = append(c.failures, fmt.Sprintf("session %s has %d tokens, needs %d", id, a.event.Tokens, tokens))
	}
	s := &session{id, a.event.Tokens}
	c.sessions = append(c.sessions, s)
	return s
}

// deleteSession deletes a session, which a request that was left may hold for a while.
func (c *client) deleteSession(s *session) {
	q := &request{kind: "delete", method: "DELETE", path: "/v1/sessions/" + s.id, wanted: []int{204, 409}}
	for range 600 {
		if c.ask(q).status != 409 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	c.fail(q, "session %s stays busy", s.id)
}

// drop deletes a session and forgets it.
func (c *client) drop(s *session) {
	c.sessions = slices.DeleteFunc(c.sessions, func(x *session) bool { return x == s })
	c.deleteSession(s)
}

// useSession makes a request of a session, which may be new.
func (c *client) useSession() {
	if len(c.sessions) == 0 || len(c.sessions) < maxSessions && c.random.IntN(4) == 0 {
		c.createSession()
		return
	}
	s := c.sessions[c.random.IntN(len(c.sessions))]
	path := "/v1/sessions/" + s.id
	switch c.random.IntN(10) {
	case 0:
		if len(c.sessions) < maxSessions {
			a := c.ask(&request{kind: "fork", method: "POST", path: path + "/fork", wanted: []int{201}})
			c.hold(&a, s.tokens)
		}
	case 1:
		a := c.ask(&request{kind: "export", method: "GET", path: path + "/export", wanted: []int{200}})
		if a.status == 200 && len(c.sessions) < maxSessions {
			a = c.ask(&request{kind: "import", method: "POST", path: "/v1/sessions/import", body: a.data, wanted: []int{201}})
			c.hold(&a, s.tokens)
		}
	case 2:
		c.drop(s)
	case 3, 4, 5:
		a := c.ask(&request{kind: "append", method: "POST", path: path + "/append", body: map[string]any{"text": c.drawText()}, wanted: []int{200}})
		if a.status == 200 {
			s.tokens = a.event.Tokens
		}
	default:
		c.generate(s)
	}
	if s.tokens > 4096 {
		c.drop(s)
	}
}

// generate continues a session, and now and then keeps a fork that repeats it alone.
func (c *client) generate(s *session) {
	body := map[string]any{}
	q := &request{kind: "generate", method: "POST", path: "/v1/sessions/" + s.id + "/generate", body: body, wanted: []int{200}}
	c.drawFields(body)
	if c.random.IntN(2) == 0 {
		body["stream"], q.isStream, q.kind = true, true, "generate, stream"
	}
	fork := ""
	if c.isCompared() {
		a := c.ask(&request{kind: "fork", method: "POST", path: "/v1/sessions/" + s.id + "/fork", wanted: []int{201}})
		if a.status == 201 {
			fork, _ = a.event.ID.(string)
		}
	}
	a := c.ask(q)
	if a.status == 200 {
		if drawn := int64(len(a.event.IDs)); a.event.Tokens != s.tokens+drawn {
			c.fail(q, "session %s has %d tokens, %d and %d drawn before", s.id, a.event.Tokens, s.tokens, drawn)
		}
		s.tokens = a.event.Tokens
	}
	switch {
	case fork == "":
	case a.status == 200:
		c.forks = c.keep(c.forks, maxForks, check{*q, a.text, fork})
	default:
		c.deleteSession(&session{id: fork})
	}
}

// leaveSession leaves a stream of a session, which then has as many tokens as were sent.
func (c *client) leaveSession() {
	s := c.createSession()
	if s == nil {
		return
	}
	const drawn = 512
	q := &request{kind: "generate, left", method: "POST", path: "/v1/sessions/" + s.id + "/generate", wanted: []int{200}, isStream: true, leaveAfter: 1 + c.random.IntN(8),
		body: map[string]any{"max_tokens": drawn, "stream": true}}
	c.ask(q)
	a := c.ask(&request{kind: "get", method: "GET", path: "/v1/sessions/" + s.id, wanted: []int{200}})
	if a.status == 200 && (a.event.Tokens < s.tokens || a.event.Tokens > s.tokens+drawn) {
		c.fail(q, "session %s has %d tokens after a stream of %d that was left, %d before", s.id, a.event.Tokens, drawn, s.tokens)
	}
	c.drop(s)
}

// badBodies are requests that are refused.
var badBodies = []request{
	{path: "/v1/completions", body: []byte(`{"prompt":"a`)},
	{path: "/v1/completions", body: []byte(strings.Repeat("[", 20000))},
	{path: "/v1/completions", body: []byte(`{"prompt":` + strings.Repeat("[", 20000))},
	{path: "/v1/completions", body: []byte(`{"prompt":{"a":1}}`)},
	{path: "/v1/completions", body: []byte(`{"prompt":[999999999]}`)},
	{path: "/v1/completions", body: []byte(`{"prompt":"a","max_tokens":-1}`)},
	{path: "/v1/completions", body: []byte(`{"prompt":"a","temperature":"x"}`)},
	{path: "/v1/completions", body: []byte(`{"prompt":"a","n":0}`)},
	{path: "/v1/completions", body: []byte(`{"prompt":"a","model":"another"}`)},
	{path: "/v1/chat/completions", body: []byte(`{"messages":[]}`)},
	{path: "/v1/embeddings", body: []byte(`{"input":7}`)},
	{path: "/v1/classify", body: []byte(`{"input":""}`)},
	{path: "/v1/sessions", body: []byte(`{"text":"a","ids":[1]}`)},
	{path: "/v1/sessions", body: []byte(`{"other":"a"}`)},
	{path: "/v1/sessions/import", body: []byte("no snapshot")},
	{path: "/v1/sessions/0123/append", body: []byte(`{"text":"a"}`)},
	{path: "/v1/nothing", body: []byte(`{}`)},
}

// sendBadBody sends a request that is refused, at times one that is too long.
func (c *client) sendBadBody() {
	q := badBodies[c.random.IntN(len(badBodies))]
	if c.random.IntN(200) == 0 {
		q.path = "/v1/completions"
		q.body, _ = json.Marshal(map[string]string{"prompt": strings.Repeat("a", 9<<20)}) // a string has no error
	}
	q.kind, q.method, q.wanted = "bad body", "POST", []int{400, 404, 405, 409, 413}
	c.ask(&q)
}
