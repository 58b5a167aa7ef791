package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/internal/chat"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/published"
	"github.com/farfield-ml/farfield/internal/serve/web"
	"github.com/farfield-ml/farfield/internal/sessions"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/train"
)

// byteTokens are the bytes of a text; id 256 begins and 257 ends one.
type byteTokens struct{}

func (byteTokens) Encode(text string, special bool) ([]int32, error) {
	var ids []int32
	if special {
		ids = append(ids, 256)
	}
	for _, b := range []byte(text) {
		ids = append(ids, int32(b))
	}
	return ids, nil
}

func (b byteTokens) EncodeContinuation(text string, _ int64) ([]int32, error) {
	return b.Encode(text, false)
}

func (byteTokens) Bytes(dst []byte, id int32) ([]byte, error) {
	switch {
	case id >= 0 && id < 256:
		return append(dst, byte(id)), nil
	case id < 258:
		return dst, nil
	}
	return dst, fmt.Errorf("id %d is outside the vocabulary", id)
}

func (byteTokens) SpecialToken(id int32) string {
	return map[int32]string{256: "<s>", 257: "</s>"}[id]
}

// newManager returns the sessions of a small decoder.
func newManager(t testing.TB, seed uint64) *sessions.Manager {
	t.Helper()
	m, err := model.New(model.Config{
		Kind: model.Decoder, Vocab: 258, Layers: 1, Heads: 2, Width: 16, Context: 64,
		Positions: model.Rotary, Mechanism: "fastmax", Tied: true,
	}, rng.New(seed))
	if err != nil {
		t.Fatal(err)
	}
	manager, err := sessions.Open(t.Context(), sessions.Options{Model: m, Identity: fmt.Sprint("model ", seed), EndTokens: []int32{257}, MaxTokens: 4096})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := manager.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return manager
}

// site is a server of tests.
type site struct {
	*httptest.Server
	t       testing.TB
	handler *Server
}

// newSite returns a server of a small decoder, with changes to its options.
func newSite(t testing.TB, change func(o *Options)) *site {
	t.Helper()
	template, err := chat.Parse("{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no such role') }}{% endif %}<{{ m.role }}>{{ m.content }}\n{% endfor %}")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Name: "tiny", Card: Card{Vocab: 258, Layers: 2}, Tokens: byteTokens{}, Sessions: newManager(t, 1),
		Chat: &Chat{Template: template}, Embedder: lengths{}, Classifier: parity{}, Reranker: parity{}, Mapper: diagonal{}, MaxBody: 1 << 16,
	}
	if change != nil {
		change(&o)
	}
	handler, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{httptest.NewServer(handler), t, handler}
	t.Cleanup(s.Close)
	return s
}

// lengths embeds a text as its length and that of the name of its prompt.
type lengths struct{}

func (lengths) Width() int { return 2 }

func (lengths) MaxTokens() int { return 64 }

func (lengths) Prompts() *published.Prompts {
	return &published.Prompts{Texts: map[string]string{"document": "", "query": ""}}
}

func (lengths) Embed(_ context.Context, prompt *string, texts []string) ([]inference.Embedding, error) {
	list := make([]inference.Embedding, len(texts))
	for i, text := range texts {
		if text != " " {
			n := len(text)
			if prompt != nil {
				n += len(*prompt)
			}
			list[i] = inference.Embedding{Values: []float32{float32(n), 0.5}, Tokens: n}
		}
	}
	return list, nil
}

// parity classifies texts by their length.
type parity struct{}

func (parity) Rerank(_ context.Context, query string, documents []string) ([]Score, error) {
	var list []Score
	for i, text := range documents {
		if text == "?" {
			return nil, &inference.TextError{Text: i, Err: errors.New("is no text")}
		}
		list = append(list, Score{Value: float64(strings.Count(text, query)), Tokens: len(query + text)})
	}
	return list, nil
}

func (parity) ClassNames() []string { return []string{"even", "odd"} }

func (parity) PredictTexts(_ context.Context, texts []string) ([]train.Prediction, error) {
	list := make([]train.Prediction, len(texts))
	for i, text := range texts {
		if text == "?" {
			return nil, &inference.TextError{Text: i, Err: errors.New("is no text")}
		}
		k := len(text) % 2
		list[i] = train.Prediction{Class: k, Probabilities: []float64{1 - float64(k), float64(k)}, Tokens: len(text)}
	}
	return list, nil
}

// diagonal has one head that sees itself and the token before.
type diagonal struct{}

func (diagonal) MapLayer(_ context.Context, ids []int32, _ int) (*inference.LayerMaps, error) {
	n := len(ids)
	weights := make([]float32, n*n)
	for i := range n {
		weights[i*n+i] = 0.75
		weights[i*n+max(0, i-1)] += 0.25
	}
	return &inference.LayerMaps{Layers: 2, Heads: 1, Window: 1, Weights: [][]float32{weights}}, nil
}

// send sends a request and returns its status and body.
func (s *site) send(method, path, body string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequest(method, s.URL+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	return s.do(r)
}

func (s *site) do(r *http.Request) (int, string) {
	s.t.Helper()
	a, err := s.Client().Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return a.StatusCode, string(text)
}

// need sends a request and reads the JSON of its answer, which needs the status.
func (s *site) need(status int, method, path, body string, v any) {
	s.t.Helper()
	got, text := s.send(method, path, body)
	if got != status {
		s.t.Fatalf("%s %s %.80s: status %d, want %d: %s", method, path, body, got, status, text)
	}
	if v == nil {
		return
	}
	if err := json.Unmarshal([]byte(text), v); err != nil {
		s.t.Fatalf("%s %s: %v in %s", method, path, err, text)
	}
}

// events returns the data of a stream's events.
func eventsOf(t testing.TB, text string) []string {
	t.Helper()
	var list []string
	for _, event := range strings.Split(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		data, ok := strings.CutPrefix(event, "data: ")
		if !ok || strings.Contains(data, "\n") {
			t.Fatalf("event is %q", event)
		}
		list = append(list, data)
	}
	return list
}

type object struct {
	ID     string
	Tokens int64
	Bytes  int64
	Model  string
}

type drawn struct {
	IDs          []int32
	Text         string
	Tokens       int64
	FinishReason string `json:"finish_reason"`
}

func TestSessionsAreContinuedForkedAndMoved(t *testing.T) {
	s := newSite(t, nil)
	var a, b, c, one object
	s.need(201, "POST", "/v1/sessions", `{"text":"abc"}`, &a)
	if a.Tokens != 4 || len(a.ID) != 32 || a.Model != "tiny" {
		t.Errorf("a session is %+v", a)
	}
	s.need(200, "POST", "/v1/sessions/"+a.ID+"/append", `{"text":"de"}`, &one)
	s.need(200, "POST", "/v1/sessions/"+a.ID+"/append", `{"ids":[102]}`, &one)
	if one.Tokens != 7 {
		t.Errorf("%d tokens, want 7", one.Tokens)
	}
	s.need(201, "POST", "/v1/sessions/"+a.ID+"/fork", "", &b)
	if b.Tokens != 7 || b.ID == a.ID {
		t.Errorf("a fork is %+v", b)
	}
	status, snapshot := s.send("GET", "/v1/sessions/"+a.ID+"/export", "")
	if status != 200 {
		t.Fatal(snapshot)
	}
	s.need(201, "POST", "/v1/sessions/import", snapshot, &c)
	s.need(200, "GET", "/v1/sessions/"+c.ID, "", &one)
	if one.Tokens != 7 || one.ID != c.ID || one.Model != "tiny" {
		t.Errorf("an imported session is %+v", one)
	}
	var first, second, third drawn
	const draw = `{"max_tokens":20,"temperature":0.9,"seed":3}`
	s.need(200, "POST", "/v1/sessions/"+a.ID+"/generate", draw, &first)
	s.need(200, "POST", "/v1/sessions/"+b.ID+"/generate", draw, &second)
	s.need(200, "POST", "/v1/sessions/"+c.ID+"/generate", draw, &third)
	if len(first.IDs) != 20 || first.Tokens != 27 || !slices.Equal(first.IDs, second.IDs) || !slices.Equal(first.IDs, third.IDs) || first.FinishReason != "length" {
		t.Errorf("draws are %+v, %+v, %+v", first, second, third)
	}
	if want, err := (textDecoder{tokens: byteTokens{}}).decode(first.IDs); err != nil || first.Text != want {
		t.Errorf("text is %q, want %q", first.Text, want)
	}
	var list struct{ Data []object }
	s.need(200, "GET", "/v1/sessions", "", &list)
	if len(list.Data) != 3 {
		t.Errorf("%d sessions, want 3", len(list.Data))
	}
	s.need(204, "DELETE", "/v1/sessions/"+a.ID, "", nil)
	s.need(404, "GET", "/v1/sessions/"+a.ID, "", nil)
	s.need(404, "POST", "/v1/sessions/"+a.ID+"/generate", "{}", nil)
}

// spacedTokens put a space before a text.
type spacedTokens struct{ byteTokens }

func (t spacedTokens) Encode(text string, special bool) ([]int32, error) {
	return t.byteTokens.Encode(" "+text, special)
}

func (t spacedTokens) EncodeContinuation(text string, tokens int64) ([]int32, error) {
	if tokens <= 1 {
		return t.Encode(text, false)
	}
	return t.byteTokens.Encode(text, false)
}

func TestAppendedTextHasNoSpaceBeforeIt(t *testing.T) {
	s := newSite(t, func(o *Options) { o.Tokens = spacedTokens{} })
	for body, want := range map[string]int64{`{"text":"abc"}`: 7, `{"ids":[256]}`: 4} {
		var a, b object
		s.need(201, "POST", "/v1/sessions", body, &a)
		if s.need(200, "POST", "/v1/sessions/"+a.ID+"/append", `{"text":"de"}`, &b); b.Tokens != want {
			t.Errorf("%s: %d tokens behind two letters, want %d", body, b.Tokens, want)
		}
	}
	s.need(404, "POST", "/v1/sessions/none/append", `{"text":"de"}`, nil)
}

func TestStreamHasTheTokensOfTheAnswer(t *testing.T) {
	s := newSite(t, nil)
	var a, b object
	s.need(201, "POST", "/v1/sessions", `{"text":"abc"}`, &a)
	s.need(201, "POST", "/v1/sessions/"+a.ID+"/fork", "{}", &b)
	var whole, last drawn
	s.need(200, "POST", "/v1/sessions/"+a.ID+"/generate", `{"max_tokens":30}`, &whole)
	status, text := s.send("POST", "/v1/sessions/"+b.ID+"/generate", `{"max_tokens":30,"stream":true}`)
	list := eventsOf(t, text)
	if status != 200 || len(list) != 32 || list[31] != "[DONE]" {
		t.Fatalf("status %d, events are %q", status, list)
	}
	var ids []int32
	joined := ""
	for _, data := range list[:30] {
		var e struct {
			ID   int32
			Text string
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatal(err)
		}
		ids, joined = append(ids, e.ID), joined+e.Text
	}
	if err := json.Unmarshal([]byte(list[30]), &last); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(ids, whole.IDs) || !slices.Equal(last.IDs, whole.IDs) || last.Text != whole.Text || last.Tokens != whole.Tokens {
		t.Errorf("stream of %v ends with %+v, want %+v", ids, last, whole)
	}
	if !strings.HasPrefix(whole.Text, joined) {
		t.Errorf("texts of a stream are %q, the answer has %q", joined, whole.Text)
	}
}

func TestCharactersAreWhole(t *testing.T) {
	d := textDecoder{tokens: byteTokens{}}
	var parts []string
	for _, b := range []byte("aé€\U0001F600\xff\xe2\x82") {
		part, err := d.add(int32(b))
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, part)
	}
	want := []string{"a", "", "é", "", "", "€", "", "", "", "\U0001F600", "\ufffd", "", ""}
	if end := d.end(); !slices.Equal(parts, want) || end != "\ufffd" {
		t.Errorf("parts are %q, then %q, want %q", parts, end, want)
	}
	if _, err := d.add(258); err == nil {
		t.Error("an id outside the vocabulary has text")
	}
}

func TestTextEndsBeforeItsStop(t *testing.T) {
	for _, c := range []struct {
		text, want string
		stops      []string
	}{
		{"one two three", "one ", []string{"two"}},
		{"aab", "", []string{"aab"}},
		{"aaab", "a", []string{"aab"}},
		{"abcd", "ab", []string{"xx", "cd"}},
		{"abcab", "abcab", []string{"abd"}},
		{"a\xe2\x82", "a\ufffd", []string{"€"}},
		{"x€y", "x", []string{"€"}},
		{"plain", "plain", nil},
	} {
		s := stopText{decoder: textDecoder{tokens: byteTokens{}}, stops: c.stops}
		got := ""
		for _, b := range []byte(c.text) {
			part, err := s.add(int32(b))
			if err != nil {
				t.Fatal(err)
			}
			got += part
			if !strings.HasPrefix(c.want, got) {
				t.Errorf("%q to %q: sends %q", c.text, c.stops, got)
			}
		}
		if got += s.end(); got != c.want {
			t.Errorf("%q to %q: %q, want %q", c.text, c.stops, got, c.want)
		}
	}
}

type answer struct {
	ID, Object, Model string
	Choices           []struct {
		Index   int
		Text    string
		Message struct{ Role, Content string }
		Delta   struct{ Role, Content string }
		Reason  string `json:"finish_reason"`
	}
	Usage struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
	}
}

func TestCompletionsOfSeveralPrompts(t *testing.T) {
	s := newSite(t, nil)
	var text, ids answer
	s.need(200, "POST", "/v1/completions", `{"model":"tiny","prompt":["ab","c"],"max_tokens":9,"seed":5}`, &text)
	s.need(200, "POST", "/v1/completions", `{"prompt":[[256,97,98],[256,99]],"max_tokens":9,"seed":5,"user":"u","n":1,"stop":null}`, &ids)
	if len(text.Choices) != 2 || text.Usage.Prompt != 5 || text.Usage.Total != text.Usage.Prompt+text.Usage.Completion || text.Object != "text_completion" {
		t.Errorf("answer is %+v", text)
	}
	for i, c := range text.Choices {
		if c.Text != ids.Choices[i].Text || c.Index != i || c.Reason == "" {
			t.Errorf("choice %d is %+v, of ids %+v", i, c, ids.Choices[i])
		}
	}
	whole := text.Choices[0].Text
	if len([]rune(whole)) < 3 {
		t.Fatalf("text is %q", whole)
	}
	stop := string([]rune(whole)[2])
	var cut answer
	body, err := json.Marshal(map[string]any{"prompt": "ab", "max_tokens": 9, "seed": 5, "stop": stop})
	if err != nil {
		t.Fatal(err)
	}
	s.need(200, "POST", "/v1/completions", string(body), &cut)
	before, _, _ := strings.Cut(whole, stop)
	if cut.Choices[0].Text != before || cut.Choices[0].Reason != "stop" {
		t.Errorf("to %q: %+v, want %q", stop, cut.Choices[0], before)
	}
}

func TestPromptsWithoutSeedHaveTheirOwn(t *testing.T) {
	s := newSite(t, nil)
	for seed, isSame := range map[string]bool{``: false, `,"seed":5`: true} {
		var a answer
		s.need(200, "POST", "/v1/completions", `{"prompt":["ab","ab","ab"],"max_tokens":20`+seed+"}", &a)
		if c := a.Choices; (c[0].Text == c[1].Text && c[1].Text == c[2].Text) != isSame {
			t.Errorf("%q: choices are %+v", seed, c)
		}
	}
}

// namedTokens have a text for the special token 256.
type namedTokens struct{ byteTokens }

func (n namedTokens) Encode(text string, special bool) ([]int32, error) {
	if text == "<|end|>" {
		return []int32{256}, nil
	}
	return n.byteTokens.Encode(text, special)
}

// script is sessions whose draws are known.
type script struct {
	*sessions.Manager
	ids []int32
}

func (f script) Complete(_ context.Context, _ []int32, d sessions.Draw, emit func(int32) error) (r sessions.Result, err error) {
	r.Reason = sessions.Length
	for i, id := range f.ids {
		if r.IDs, err = f.ids[:i+1], emit(id); err != nil {
			return r, err
		}
		if d.Stop != nil && d.Stop(r.IDs) {
			r.Reason = sessions.Stopped
			break
		}
	}
	return r, nil
}

func TestSpecialTokenIsAStop(t *testing.T) {
	s := newSite(t, func(o *Options) {
		o.Tokens, o.Sessions = namedTokens{}, script{o.Sessions.(*sessions.Manager), []int32{'a', 256, 'b'}}
	})
	for stop, want := range map[string]string{"<|end|>": "a stop", "b": "a stop", "a": " stop", "c": "ab length"} {
		var a answer
		s.need(200, "POST", "/v1/completions", `{"prompt":"x","stop":"`+stop+`"}`, &a)
		if got := a.Choices[0].Text + " " + a.Choices[0].Reason; got != want {
			t.Errorf("to %q: %q, want %q", stop, got, want)
		}
	}
}

func TestEndTokenHasNoText(t *testing.T) {
	s := newSite(t, func(o *Options) {
		manager := o.Sessions.(*sessions.Manager)
		o.EndTokens = []int32{'.'}
		o.Sessions = struct {
			script
			generator
		}{script{manager, []int32{'a', '.'}}, faulty{manager, func(_ context.Context, emit func(int32) error) (r sessions.Result, err error) {
			r.IDs = []int32{'a', '.'}
			for _, id := range r.IDs {
				if err == nil && emit != nil {
					err = emit(id)
				}
			}
			return r, err
		}}}
	})
	var a answer
	s.need(200, "POST", "/v1/completions", `{"prompt":"x"}`, &a)
	if a.Choices[0].Text != "a" || a.Usage.Completion != 2 {
		t.Errorf("answer is %+v, want the text a of 2 tokens", a)
	}
	for stopsAtEnd, want := range map[string]string{"true": "a", "false": "a."} {
		var d drawn
		s.need(200, "POST", "/v1/sessions/x/generate", `{"stop_at_end":`+stopsAtEnd+`}`, &d)
		_, text := s.send("POST", "/v1/sessions/x/generate", `{"stream":true,"stop_at_end":`+stopsAtEnd+`}`)
		joined := ""
		for _, data := range eventsOf(t, text)[:2] {
			var e struct{ Text string }
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				t.Fatal(err)
			}
			joined += e.Text
		}
		if d.Text != want || joined != want || len(d.IDs) != 2 {
			t.Errorf("stop_at_end %s: %+v, a stream of %q, want %q", stopsAtEnd, d, joined, want)
		}
	}
}

// queue is sessions that count their completions.
type queue struct {
	*sessions.Manager
	running, most atomic.Int64
}

func (q *queue) Complete(context.Context, []int32, sessions.Draw, func(int32) error) (sessions.Result, error) {
	q.most.Store(max(q.most.Load(), q.running.Add(1)))
	defer q.running.Add(-1)
	time.Sleep(10 * time.Millisecond)
	return sessions.Result{}, nil
}

func TestPromptsFitAShortQueue(t *testing.T) {
	q := &queue{Manager: newManager(t, 1)}
	s := newSite(t, func(o *Options) { o.Sessions, o.MaxQueue = q, 2 })
	s.need(200, "POST", "/v1/completions", `{"prompt":["a","b","c","d"]}`, nil)
	if n := q.most.Load(); n > 2 {
		t.Errorf("%d prompts at a time, the queue holds 2", n)
	}
}

func TestRequestsFillALongQueue(t *testing.T) {
	for queue, want := range map[int]int{0: 512, 256: 512, 1000: 2000} {
		s := newSite(t, func(o *Options) { o.MaxQueue = queue })
		if n := s.handler.o.MaxRequests; n != want {
			t.Errorf("%d requests at a time beside a queue of %d, want %d", n, queue, want)
		}
	}
}

func TestTopPOfZeroDrawsTheMostLikelyToken(t *testing.T) {
	s := newSite(t, nil)
	var want, got struct{ Choices []struct{ Text string } }
	s.need(200, "POST", "/v1/completions", `{"prompt":"abc","max_tokens":20,"temperature":0}`, &want)
	s.need(200, "POST", "/v1/completions", `{"prompt":"abc","max_tokens":20,"top_p":0,"seed":7}`, &got)
	if got.Choices[0].Text != want.Choices[0].Text {
		t.Errorf("text is %q, want %q", got.Choices[0].Text, want.Choices[0].Text)
	}
}

func TestStreamOfCompletionsJoinsToTheAnswer(t *testing.T) {
	s := newSite(t, nil)
	for path, bodies := range map[string][2]string{
		"/v1/completions":      {`{"prompt":"ab","max_tokens":12,"seed":5`, "text_completion"},
		"/v1/chat/completions": {`{"messages":[{"role":"user","content":"ab"}],"max_tokens":12,"seed":5`, "chat.completion.chunk"},
	} {
		var whole answer
		s.need(200, "POST", path, bodies[0]+"}", &whole)
		_, text := s.send("POST", path, bodies[0]+`,"stream":true,"stream_options":{"include_usage":true}}`)
		list := eventsOf(t, text)
		joined, reason, role := "", "", ""
		var last answer
		for _, data := range list[:len(list)-1] {
			last = answer{}
			if err := json.Unmarshal([]byte(data), &last); err != nil {
				t.Fatal(err)
			}
			for _, c := range last.Choices {
				joined += c.Text + c.Delta.Content
				reason += c.Reason
				role += c.Delta.Role
			}
		}
		want := whole.Choices[0].Text + whole.Choices[0].Message.Content
		if joined != want || reason != whole.Choices[0].Reason || last.Usage != whole.Usage || last.Object != bodies[1] || list[len(list)-1] != "[DONE]" {
			t.Errorf("%s: joins to %q with %q, %+v, want %q, %+v", path, joined, reason, last, want, whole)
		}
		if path == "/v1/chat/completions" && role != "assistant" {
			t.Errorf("%s: roles are %q", path, role)
		}
	}
}

func TestChatReadsTheTextOfTheTemplate(t *testing.T) {
	s := newSite(t, nil)
	var c, p answer
	s.need(200, "POST", "/v1/chat/completions", `{"messages":[{"role":"system","content":"x"},{"role":"user","content":[{"type":"text","text":"y"},{"type":"text","text":"z"}]}],"max_completion_tokens":8,"seed":4,"tools":[],"response_format":{"type":"text"}}`, &c)
	ids, err := json.Marshal(func() []int32 { ids, _ := byteTokens{}.Encode("<system>x\n<user>yz\n", false); return ids }())
	if err != nil {
		t.Fatal(err)
	}
	s.need(200, "POST", "/v1/completions", `{"prompt":`+string(ids)+`,"max_tokens":8,"seed":4}`, &p)
	if c.Choices[0].Message.Content != p.Choices[0].Text || c.Choices[0].Message.Role != "assistant" || c.Usage != p.Usage {
		t.Errorf("chat answers %+v, the text of the template %+v", c, p)
	}
}

func TestAnswerOfAConversationFitsASession(t *testing.T) {
	s := newSite(t, func(o *Options) { o.MaxSession = 4096 })
	s.need(200, "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"a","refusal":null}],"response_format":{ "type": "text" },"stop":["b"]}`, nil)
}

// limited is sessions that draw all tokens of a request.
type limited struct{ *sessions.Manager }

func (limited) Complete(_ context.Context, _ []int32, d sessions.Draw, _ func(int32) error) (sessions.Result, error) {
	return sessions.Result{IDs: make([]int32, d.MaxTokens), Reason: sessions.Length}, nil
}

func TestAnswerOfAConversationFitsTheTrainedContext(t *testing.T) {
	s := newSite(t, func(o *Options) { o.Card.TrainedContext, o.Sessions = 100, limited{o.Sessions.(*sessions.Manager)} })
	for _, letters := range []int{1, 50, 90} { // after 7 other tokens
		for max, want := range map[string]int{"": 93 - letters, `,"max_tokens":2`: 2} {
			var a answer
			s.need(200, "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"`+strings.Repeat("a", letters)+`"}]`+max+"}", &a)
			if a.Usage.Completion != want {
				t.Errorf("%d letters%s: %d tokens behind %d, want %d", letters, max, a.Usage.Completion, a.Usage.Prompt, want)
			}
		}
	}
}

// Texts end at the trained context unless the server goes on after it.
func TestTextsEndAtTheTrainedContext(t *testing.T) {
	long := strings.Repeat("a", 70)
	bodies := func(id string) map[string]string {
		return map[string]string{
			"/v1/completions":                  `{"prompt":"` + long + `"}`,
			"/v1/completions ":                 `{"prompt":"a","max_tokens":63}`,
			"/v1/chat/completions":             `{"messages":[{"role":"user","content":"` + long + `"}]}`,
			"/v1/sessions":                     `{"text":"` + long + `"}`,
			"/v1/sessions/" + id + "/append":   `{"text":"` + long + `"}`,
			"/v1/sessions/" + id + "/generate": `{"max_tokens":63}`,
		}
	}
	for _, beyond := range []bool{false, true} {
		s := newSite(t, func(o *Options) { o.Card.TrainedContext, o.BeyondContext = 64, beyond })
		var a object
		s.need(201, "POST", "/v1/sessions", `{"text":"a"}`, &a)
		s.need(200, "POST", "/v1/completions", `{"prompt":"`+long[:55]+`"}`, nil) // 8 tokens are left
		for path, body := range bodies(a.ID) {
			status, text := s.send("POST", strings.TrimSpace(path), body)
			if (status/100 == 2) != beyond || !beyond && (status != 400 || !strings.Contains(text, "context_length_exceeded") || !strings.Contains(text, "--beyond-context")) {
				t.Errorf("beyond %v: %s %.40s: status %d, %.200s", beyond, path, body, status, text)
			}
		}
	}
}

// Texts go on in their states beyond the trained context, and answers say how far.
func TestAnswersCountTokensBeyondTheTrainedContext(t *testing.T) {
	s := newSite(t, func(o *Options) { o.Card.TrainedContext, o.BeyondContext = 64, true })
	type counts struct {
		ID     string
		Tokens int64
		Beyond int64 `json:"beyond_trained_context"`
		Usage  struct {
			Total  int64 `json:"total_tokens"`
			Beyond int64 `json:"beyond_trained_context"`
		}
	}
	for _, letters := range []int{10, 60} {
		var a counts
		s.need(200, "POST", "/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":10}`, strings.Repeat("a", letters)), &a)
		if a.Usage.Total == 0 || a.Usage.Beyond != max(a.Usage.Total-64, 0) {
			t.Errorf("%d letters: %+v", letters, a.Usage)
		}
		var made, appended, drawn, seen counts
		s.need(201, "POST", "/v1/sessions", fmt.Sprintf(`{"text":%q}`, strings.Repeat("a", letters)), &made)
		s.need(200, "POST", "/v1/sessions/"+made.ID+"/append", fmt.Sprintf(`{"text":%q}`, strings.Repeat("b", 70)), &appended)
		s.need(200, "POST", "/v1/sessions/"+made.ID+"/generate", `{"max_tokens":5}`, &drawn)
		s.need(200, "GET", "/v1/sessions/"+made.ID, "", &seen)
		for _, x := range []counts{made, appended, drawn, seen} {
			if x.Tokens == 0 || x.Beyond != max(x.Tokens-64, 0) {
				t.Errorf("%d letters: %+v", letters, x)
			}
		}
	}
}

func TestVectorsClassesAndMaps(t *testing.T) {
	s := newSite(t, nil)
	var v struct {
		Data []struct {
			Index     int
			Embedding any
		}
		Usage struct {
			Total int `json:"total_tokens"`
		}
	}
	s.need(200, "POST", "/v1/embeddings", `{"input":["a","bcd"],"model":"tiny","dimensions":2}`, &v)
	if fmt.Sprint(v.Data) != "[{0 [1 0.5]} {1 [3 0.5]}]" || v.Usage.Total != 4 {
		t.Errorf("vectors are %v of %d tokens", v.Data, v.Usage.Total)
	}
	for name, want := range map[string]string{`"query"`: "6", `""`: "1", "null": "1"} {
		s.need(200, "POST", "/v1/embeddings", `{"input":"a","prompt_name":`+name+`}`, &v)
		if fmt.Sprint(v.Data) != "[{0 ["+want+" 0.5]}]" {
			t.Errorf("the vector behind the prompt %s is %v", name, v.Data)
		}
	}
	s.need(200, "POST", "/v1/embeddings", `{"input":"a","encoding_format":"base64"}`, &v)
	if v.Data[0].Embedding != "AACAPwAAAD8=" {
		t.Errorf("a vector in base64 is %v", v.Data)
	}
	var c struct {
		Data []struct {
			Index         int
			Class         string
			Probabilities map[string]float64
			Tokens        int
		}
	}
	s.need(200, "POST", "/v1/classify", `{"input":["a","bc"]}`, &c)
	if fmt.Sprint(c.Data) != "[{0 odd map[even:0 odd:1] 1} {1 even map[even:1 odd:0] 2}]" {
		t.Errorf("classes are %v", c.Data)
	}
	var m struct {
		Tokens        []string
		IDs           []int32
		Layers, Heads int
		Maps          [][][]float32
		Near, Far     []float64
		Distance      []float64
		Layer         int
	}
	s.need(200, "POST", "/v1/maps", `{"ids":[256,98],"layer":1}`, &m)
	if fmt.Sprint(m) != "{[<s> b] [256 98] 2 1 [[[1 0] [0.25 0.75]]] [0.875] [0.125] [0.125] 1}" {
		t.Errorf("maps are %v", m)
	}
	var list struct {
		Data []struct {
			ID   string
			Card Card `json:"farfield"`
		}
	}
	s.need(200, "GET", "/v1/models", "", &list)
	if d := list.Data; len(d) != 1 || d[0].ID != "tiny" || !d[0].Card.HasSessions || !d[0].Card.HasChat || !d[0].Card.Embeds || !d[0].Card.HasMaps || len(d[0].Card.Classes) != 2 {
		t.Errorf("models are %+v", list)
	} else if c := d[0].Card; c.MaxTokens != 1<<16 || c.SessionTokens != 0 || c.KeepsSessions {
		t.Errorf("limits are %+v", c)
	}
	s.need(200, "GET", "/v1/models/tiny", "", nil)
	s.need(404, "GET", "/v1/models/other", "", nil)
}

func TestModelWithoutAPartSaysSo(t *testing.T) {
	s := newSite(t, func(o *Options) {
		*o = Options{Name: "none", Page: web.Page{}}
	})
	for _, path := range []string{"sessions", "completions", "chat/completions", "embeddings", "classify", "maps", "sessions/x/append", "sessions/x/generate", "sessions/x/fork", "sessions/import"} {
		status, text := s.send("POST", "/v1/"+path, "{}")
		if status != 400 || !strings.Contains(text, `model: \"none\" `) || !strings.Contains(text, `"code":"unsupported"`) {
			t.Errorf("%s: status %d, %s", path, status, text)
		}
	}
	s.need(200, "GET", "/v1/sessions", "", nil)
	s.need(405, "POST", "/", "", nil)
	s.need(200, "GET", "/index.html", "", nil)
	for _, path := range []string{"/models", "/v1", "/v1/", "/chat/completions"} {
		if status, text := s.send("GET", path, ""); status != 404 || !strings.Contains(text, `"code":"not_found"`) {
			t.Errorf("%s: status %d, %s", path, status, text)
		}
	}
	s = newSite(t, func(o *Options) { o.Chat = &Chat{Refused: errors.New("statement macro is not supported")} })
	if status, text := s.send("POST", "/v1/chat/completions", "{}"); status != 400 || !strings.Contains(text, "statement macro is not supported") {
		t.Errorf("status %d, %s", status, text)
	}
}

func TestMetricsCountRequests(t *testing.T) {
	s := newSite(t, nil)
	s.need(201, "POST", "/v1/sessions", `{"text":"abc"}`, nil)
	s.need(404, "GET", "/v1/nothing", "", nil)
	status, text := s.send("GET", "/metrics", "")
	if status != 200 {
		t.Fatal(text)
	}
	for _, want := range []string{
		`farfield_http_requests_total{method="POST",path="/v1/sessions",status="201"} 1`,
		`farfield_http_requests_total{method="GET",path="/",status="404"} 1`,
		`farfield_http_request_seconds_count{path="/v1/sessions"} 1`,
		"farfield_sessions 1", "# TYPE farfield_http_request_seconds histogram",
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("%s is not in\n%s", want, text)
		}
	}
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		var x float64
		name, value, ok := strings.Cut(line, "} ")
		if !ok {
			name, value, ok = strings.Cut(line, " ")
		}
		if n, err := fmt.Sscan(value, &x); !ok || !strings.HasPrefix(line, "#") && (n != 1 || err != nil || name == "") {
			t.Errorf("line is %q", line)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for want, o := range map[string]Options{
		"MaxBody: -1 is negative":        {MaxBody: -1},
		"Rate: -1 is negative":           {Rate: -1},
		"Tokens: is nil beside Sessions": {Sessions: newManager(t, 1)},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %s", err, want)
		}
	}
}
