package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/internal/sessions"
)

var copyTo = io.Copy

// refusal is the error of an answer.
type refusal struct {
	Error struct {
		Message, Type string
		Param, Code   *string
	}
}

func TestBadBodiesAreRefusedByField(t *testing.T) {
	s := newSite(t, nil)
	var a object
	s.need(201, "POST", "/v1/sessions", `{"text":"abc"}`, &a)
	id := "/v1/sessions/" + a.ID
	long := strings.Repeat("a", 5000)
	for _, c := range []struct {
		path, body string
		status     int
		param      string // of the error
		message    string
	}{
		{"/v1/sessions", `{"text":"a"`, 400, "", "ends early"},
		{"/v1/sessions", "{\"text\":\"a\xe2\x82\"}", 400, "", "is not UTF-8"},
		{"/v1/sessions", `{"text":"a\ud83d"}`, 400, "", "half of a surrogate pair"},
		{"/v1/sessions", `{"text":"\uD83D\u0041"}`, 400, "", "half of a surrogate pair"},
		{"/v1/sessions", `{"text":"\\\\ \ude00"}`, 400, "", "half of a surrogate pair"},
		{"/v1/sessions", `{"text":"\ud83d\ude00\ud83d"}`, 400, "", "half of a surrogate pair"},
		{"/v1/sessions", `{"text":"\ud83"}`, 400, "text", "at byte 9"},
		{"/v1/sessions", `{"text":"\`, 400, "", "ends early"},
		{"/v1/sessions", `[]`, 400, "", "is no JSON object"},
		{"/v1/sessions", `{"text":"a"} {}`, 400, "", "more follows the JSON value"},
		{"/v1/sessions", `{"text":"a","txt":1}`, 400, "txt", "is no field"},
		{"/v1/sessions", `{"text":1}`, 400, "text", "is number, needs a string"},
		{"/v1/sessions", `{"text":"a","ids":[1]}`, 400, "ids", "beside text"},
		{"/v1/sessions", `{"ids":["a"]}`, 400, "ids[0]", "is string"},
		{"/v1/sessions", `{"ids":[1,null]}`, 400, "ids", "has null"},
		{"/v1/sessions", `{"ids":1}`, 400, "ids", "is number, needs an array"},
		{"/v1/sessions", `{"ids":[1.5]}`, 400, "ids[0]", "number 1.5"},
		{"/v1/sessions", `{"ids":[99999999999]}`, 400, "ids[0]", "number 99999999999, needs an integer in its range"},
		{"/v1/sessions", `{"ids":[-1]}`, 400, "ids", "-1"},
		{"/v1/sessions", `{"ids":[258]}`, 400, "ids", "258"},
		{"/v1/sessions", strings.Repeat(`{"text":`, 8000), 400, "", ""},
		{"/v1/sessions", `{"text":"` + strings.Repeat("a", 1<<16) + `"}`, 413, "", "longer than 65536 bytes"},
		{"/v1/sessions", `{"text":"` + long + `"}`, 413, "", "5001"},
		{"/v1/sessions", `{"model":"other"}`, 404, "model", "other"},
		{"/v1/sessions/import", "abc", 400, "", ""},
		{"/v1/sessions/import", "", 400, "", ""},
		{id + "/append", `{}`, 400, "text", "is missing"},
		{id + "/append", `{"text":"` + long + `"}`, 413, "", ""},
		{id + "/fork", `{"a":1}`, 400, "a", "is no field"},
		{id + "/generate", `{"max_tokens":-1}`, 400, "max_tokens", "-1"},
		{id + "/generate", `{"max_tokens":65537}`, 400, "max_tokens", "65537"},
		{id + "/generate", `{"max_tokens":5000}`, 413, "", ""},
		{id + "/generate", `{"temperature":-1}`, 400, "temperature", "-1"},
		{id + "/generate", `{"temperature":1e999}`, 400, "temperature", ""},
		{id + "/generate", `{"top_p":2}`, 400, "top_p", "2"},
		{id + "/generate", `{"top_k":-2}`, 400, "top_k", "-2"},
		{id + "/generate", `{"seed":-2}`, 400, "seed", "-2"},
		{id + "/generate", `{"stream":"yes"}`, 400, "stream", "string"},
		{id + "/generate", `{"stop":[""]}`, 400, "stop", "text 0 has 0 bytes"},
		{id + "/rewind", `{}`, 400, "tokens", "is missing"},
		{id + "/rewind", `{"tokens":5}`, 400, "tokens", "5 is not between 0 and the 4"},
		{id + "/nothing", `{}`, 404, "", "there is no"},
		{"/v1/sessions/none/generate", `{}`, 404, "", "unknown"},
		{"/v1/completions", `{}`, 400, "prompt", "is missing"},
		{"/v1/completions", `{"prompt":[]}`, 400, "prompt", ""},
		{"/v1/completions", `{"prompt":{"a":1}}`, 400, "prompt", ""},
		{"/v1/completions", `{"prompt":[1,"a"]}`, 400, "prompt", ""},
		{"/v1/completions", `{"prompt":"a","n":0}`, 400, "n", "0 is not between 1 and 128"},
		{"/v1/completions", `{"prompt":"a","n":1.5}`, 400, "n", "number 1.5"},
		{"/v1/completions", `{"prompt":"a","n":3,"best_of":2}`, 400, "best_of", "2 is not between n, which is 3"},
		{"/v1/completions", `{"prompt":"a","best_of":2,"stream":true}`, 400, "best_of", "cannot be streamed"},
		{"/v1/completions", `{"prompt":"a","logprobs":21}`, 400, "logprobs", "is 21"},
		{"/v1/completions", `{"prompt":"a","logprobs":true}`, 400, "logprobs", "is true"},
		{"/v1/completions", `{"prompt":"a","suffix":"b"}`, 400, "suffix", "does not support"},
		{"/v1/completions", `{"prompt":"a","logit_bias":{"258":1}}`, 400, "logit_bias", `"258" is no id of the 258 tokens`},
		{"/v1/completions", `{"prompt":"a","logit_bias":{"7":101}}`, 400, "logit_bias.7", "101 is not between -100 and 100"},
		{"/v1/completions", `{"prompt":"a","logit_bias":[1]}`, 400, "logit_bias", "is array, needs an object"},
		{"/v1/completions", `{"prompt":"a","repetition_penalty":0}`, 400, "repetition_penalty", "0 is not between"},
		{"/v1/completions", `{"prompt":"a","repetition_penalty":2,"repeat_penalty":3}`, 400, "repeat_penalty", "one is needed"},
		{"/v1/completions", `{"prompt":"a","response_format":{"type":"xml"}}`, 400, "response_format.type", `"xml" is none of`},
		{"/v1/completions", `{"prompt":"a","response_format":{"type":"json_schema"}}`, 400, "response_format.json_schema.schema", "is missing"},
		{"/v1/completions", `{"prompt":"a","response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object","properties":{"a":{"type":"string","pattern":"x"}}}}}}`, 400, "response_format.json_schema.schema.properties.a.pattern", "is not supported"},
		{"/v1/completions", `{"prompt":"a","stop":["a",""]}`, 400, "stop", "text 1 has 0 bytes"},
		{"/v1/completions", `{"prompt":"a","stop":5}`, 400, "stop", ""},
		{"/v1/completions", `{"prompt":"a","stream_options":{"include_usage":true}}`, 400, "stream_options", ""},
		{"/v1/completions", `{"prompt":"a","model":"other"}`, 404, "model", "other"},
		{"/v1/completions", `{"prompt":[[1],[3,999]]}`, 400, "prompt", "text 1: element 1 is 999"},
		{"/v1/completions", `{"prompt":[1,null]}`, 400, "prompt", "neither"},
		{"/v1/completions", `{"prompt":[[1],[null]]}`, 400, "prompt", "neither"},
		{"/v1/chat/completions", `{}`, 400, "messages", "0 messages"},
		{"/v1/chat/completions", `{"messages":[{"content":"a"}]}`, 400, "messages[0].role", "is missing"},
		{"/v1/chat/completions", `{"messages":[{"role":"user"}]}`, 400, "messages[0].content", ""},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, 400, "messages[0].content[0]", "image_url"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"a"}}]}]}`, 400, "messages[0].content[0]", "image_url"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"text","text":"a","txt":1}]}]}`, 400, "messages[0].content[0].txt", "is no field"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"},{"role":"user","content":"a","audio":{"id":"x"}}]}`, 400, "messages[1].audio", "is no field"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a","tool_calls":[{"id":"x"}]}]}`, 400, "messages[0].tool_calls[0].function.name", "is missing"},
		{"/v1/chat/completions", `{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"[]"}}]}]}`, 400, "messages[0].tool_calls[0].function.arguments", "needs the JSON of an object"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"top_logprobs":2}`, 400, "top_logprobs", "without logprobs"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"logprobs":5}`, 400, "logprobs", "needs true or false"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"tool_choice":"required"}`, 400, "tool_choice", "without tools"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f"}}]}`, 400, "tools", "has no place for tools"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f g"}}]}`, 400, "tools[0].function.name", "f g"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"},{"role":5,"content":"a"}]}`, 400, "messages[1].role", "is number, needs a string"},
		{"/v1/chat/completions", `{"messages":["a"]}`, 400, "messages[0]", "is string, needs an object"},
		{"/v1/chat/completions", `{"messages":{"a":1}}`, 400, "messages", "is object, needs an array"},
		{"/v1/chat/completions", `{"messages":[],"stream_options":{"include_usage":1}}`, 400, "stream_options.include_usage", "is number, needs true or false"},
		{"/v1/completions", `{"prompt":"a","frequency_penalty":2.5}`, 400, "frequency_penalty", "2.5 is not between -2 and 2"},
		{"/v1/completions", `{"prompt":"a","min_p":1.5}`, 400, "min_p", "1.5 is not between 0 and 1"},
		{"/v1/completions", `{"prompt":"a","special":false}`, 400, "special", "is no field"},
		{"/v1/chat/completions", `{"messages":[{"role":"assistant","content":"a","refusal":"no"}]}`, 400, "messages[0].refusal", "does not support"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"max_tokens":1,"max_completion_tokens":2}`, 400, "max_tokens", "is 1, max_completion_tokens is 2"},
		{"/v1/chat/completions", `{"messages":[{"role":"tool","content":"a"}]}`, 400, "messages", "no such role"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"tools":[{}]}`, 400, "tools[0].type", "needs function"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"max_completion_tokens":-1}`, 400, "max_completion_tokens", "-1"},
		{"/v1/embeddings", `{}`, 400, "input", "is missing"},
		{"/v1/embeddings", `{"input":[1,300]}`, 400, "input[0]", "check_embedding_ctx_length=False"},
		{"/v1/embeddings", `{"input":[[97,98],[97,256]]}`, 400, "input[1]", "are not the tokens that this model's tokenizer makes"},
		{"/v1/rerank", `{}`, 400, "query", "is missing"},
		{"/v1/rerank", `{"query":"a","documents":[]}`, 400, "documents", "has 0 texts"},
		{"/v1/rerank", `{"query":"a","documents":["b",{"title":"c"}]}`, 400, "documents[1]", "an object with text"},
		{"/v1/rerank", `{"query":"a","documents":["b","?"]}`, 400, "documents[1]", "no text"},
		{"/v1/rerank", `{"query":"a","documents":["b"],"top_n":0}`, 400, "top_n", "0 is below 1"},
		{"/v1/tokenize", `{}`, 400, "text", "is missing"},
		{"/v1/tokenize", `{"ids":[258]}`, 400, "ids", "element 0 is 258"},
		{"/v1/embeddings", `{"input":["a",""]}`, 400, "input[1]", "is empty"},
		{"/v1/embeddings", `{"input":["a"," "]}`, 400, "input[1]", "has no tokens"},
		{"/v1/embeddings", `{"input":["a",null]}`, 400, "input", ""},
		{"/v1/embeddings", `{"input":"a","dimensions":3}`, 400, "dimensions", "3"},
		{"/v1/embeddings", `{"input":"a","prompt_name":"question"}`, 400, "prompt_name", `"question" is none of document, query`},
		{"/v1/embeddings", `{"input":"a","encoding_format":"hex"}`, 400, "encoding_format", "hex"},
		{"/v1/classify", `{"input":5}`, 400, "input", ""},
		{"/v1/classify", `{"input":["a","?"]}`, 400, "input[1]", "no text"},
		{"/v1/maps", `{"text":"` + strings.Repeat("a", 256) + `"}`, 400, "text", "257"},
		{"/v1/maps", `{"text":"a","layer":2}`, 400, "layer", "2"},
		{"/v1/maps", `{"ids":[500]}`, 400, "ids", "500"},
	} {
		status, text := s.send("POST", c.path, c.body)
		var e refusal
		if err := json.Unmarshal([]byte(text), &e); err != nil || e.Error.Message == "" || e.Error.Type == "" {
			t.Errorf("%s %.60s: %v, %s", c.path, c.body, err, text)
			continue
		}
		param := ""
		if e.Error.Param != nil {
			param = *e.Error.Param
		}
		if status != c.status || c.param != "" && param != c.param || !strings.Contains(e.Error.Message, c.message) {
			t.Errorf("%s %.60s: status %d, %s, want %d, %s, %s", c.path, c.body, status, text, c.status, c.param, c.message)
		}
	}
	var one object
	if s.need(200, "GET", id, "", &one); one.Tokens != 4 {
		t.Errorf("refused requests left %d tokens, want 4", one.Tokens)
	}
}

// Fields that ask for nothing change no answer; a strict server refuses those that it does not know.
func TestNeutralValuesAskForNothing(t *testing.T) {
	const (
		prompt  = `{"prompt":"a","max_tokens":3,"temperature":0`
		message = `{"max_tokens":3,"temperature":0,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"`
	)
	loose := newSite(t, nil)
	strict := newSite(t, func(o *Options) { o.Strict = true })
	for _, c := range []struct {
		path, body, more, end string
		isKnown               bool // also to a strict server
	}{
		{"/v1/completions", prompt, `,"n":1,"frequency_penalty":0,"presence_penalty":-0.0,"logit_bias":{},"best_of":1.0,"suffix":"","echo":false,"user":null`, "}", true},
		{"/v1/completions", prompt, `,"stop":null,"stream":null,"seed":null,"top_p":null,"model":null,"logprobs":null,"stream_options":null`, "}", true},
		{"/v1/completions", prompt, `,"stop":[]`, "}", false},
		{"/v1/completions", prompt, `,"stop": [ ] ,"stream_options":{"include_usage":false}`, "}", false},
		{"/v1/completions", prompt, `,"extra_body":{},"guided":null,"tags":[ ]`, "}", false},
		{"/v1/chat/completions", message, `,"refusal":null,"name":null`, "}]}", true},
		{"/v1/chat/completions", message, `,"audio":null,"function_call":null,"tool_calls":null,"annotations":[]`, "}]}", false},
		{"/v1/chat/completions", message, `,"tool_calls":[]`, "}]}", false},
		{"/v1/chat/completions", message, `}],"tools":[],"functions":[],"tool_choice":"none","response_format":{"type":"text"},"audio":null,"top_logprobs":0`, "}", true},
		{"/v1/chat/completions", message, `},{"role":"user","content":[{"type":"text","text":"","cache_control":null}]`, "}]}", false},
	} {
		whole := c.body + c.more + c.end
		status, text := loose.send("POST", c.path, whole)
		if status != 200 {
			t.Errorf("%s %s: status %d, %s", c.path, whole, status, text)
		}
		if end := "}"; strings.HasPrefix(c.more, ",") {
			if c.path != "/v1/completions" {
				end = "}]}"
			}
			_, plain := loose.send("POST", c.path, c.body+end)
			if answerText(t, plain) != answerText(t, text) {
				t.Errorf("%s %s: the answer is %s, without them %s", c.path, c.more, text, plain)
			}
		}
		want := 400
		if c.isKnown {
			want = 200
		}
		if status, text := strict.send("POST", c.path, whole); status != want {
			t.Errorf("%s %s: a strict server has status %d, want %d: %s", c.path, whole, status, want, text)
		}
	}
}

// answerText returns the choices of an answer.
func answerText(t *testing.T, text string) string {
	t.Helper()
	var a struct{ Choices json.RawMessage }
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		t.Fatal(err)
	}
	return string(a.Choices)
}

func TestWholeSurrogatePairsAreRead(t *testing.T) {
	s := newSite(t, nil)
	var a object
	if s.need(201, "POST", "/v1/sessions", `{"text":"\\ud83d\ud83d\ude00\u00e9"}`, &a); a.Tokens != 1+6+4+2 {
		t.Errorf("%d tokens, want 13", a.Tokens)
	}
}

func TestSnapshotOfAnotherModelIsRefused(t *testing.T) {
	a, b := newSite(t, nil), newSite(t, func(o *Options) { o.Sessions = newManager(t, 2) })
	var one object
	a.need(201, "POST", "/v1/sessions", `{"text":"abc"}`, &one)
	_, snapshot := a.send("GET", "/v1/sessions/"+one.ID+"/export", "")
	if status, text := b.send("POST", "/v1/sessions/import", snapshot); status != 409 || !strings.Contains(text, "foreign_snapshot") {
		t.Errorf("status %d, %s", status, text)
	}
}

// faulty is sessions whose draws the test decides.
type faulty struct {
	*sessions.Manager
	draw func(ctx context.Context, emit func(int32) error) (sessions.Result, error)
}

// generator draws tokens of a session.
type generator interface {
	Generate(ctx context.Context, id string, d sessions.Draw, emit func(int32) error) (sessions.Result, error)
}

func (f faulty) Generate(ctx context.Context, _ string, _ sessions.Draw, emit func(int32) error) (sessions.Result, error) {
	return f.draw(ctx, emit)
}

func TestErrorsOfSessionsHaveTheirStatus(t *testing.T) {
	var err error
	s := newSite(t, func(o *Options) {
		o.Sessions = faulty{newManager(t, 1), func(context.Context, func(int32) error) (sessions.Result, error) { return sessions.Result{}, err }}
	})
	for _, c := range []struct {
		err    error
		status int
	}{
		{sessions.ErrUnknown, 404}, {sessions.ErrBusy, 409}, {sessions.ErrForeign, 409}, {sessions.ErrFull, 429}, {sessions.ErrTooLong, 413},
		{sessions.ErrClosed, 503}, {&sessions.FieldError{Field: "max_tokens", Message: "x"}, 400}, {errors.New("other"), 500},
	} {
		err = fmt.Errorf("x: %w", c.err)
		for _, body := range []string{"{}", `{"stream":true}`} {
			r, _ := http.NewRequest("POST", s.URL+"/v1/sessions/x/generate", strings.NewReader(body))
			a, failed := s.Client().Do(r)
			if failed != nil {
				t.Fatal(failed)
			}
			a.Body.Close()
			if a.StatusCode != c.status || (a.StatusCode == 429 || a.StatusCode == 503) != (a.Header.Get("Retry-After") != "") {
				t.Errorf("%v, %s: status %d, want %d", c.err, body, a.StatusCode, c.status)
			}
		}
	}
}

func TestErrorWithinAStreamIsItsLastEvent(t *testing.T) {
	s := newSite(t, func(o *Options) {
		o.Sessions = faulty{newManager(t, 1), func(_ context.Context, emit func(int32) error) (sessions.Result, error) {
			return sessions.Result{}, errors.Join(emit('a'), sessions.ErrClosed)
		}}
	})
	status, text := s.send("POST", "/v1/sessions/x/generate", `{"stream":true}`)
	list := eventsOf(t, text)
	if status != 200 || len(list) != 2 || list[0] != `{"id":97,"text":"a"}` || !strings.Contains(list[1], `"code":"stopping"`) {
		t.Errorf("status %d, events are %q", status, list)
	}
}

// waitGoroutines waits until no more goroutines run than before.
func waitGoroutines(t *testing.T, before int) {
	t.Helper()
	for runtime.NumGoroutine() > before {
		select {
		case <-t.Context().Done():
			t.Fatal("goroutines are left")
		default:
			runtime.Gosched()
		}
	}
}

func TestClientThatGoesCancelsItsDraw(t *testing.T) {
	ended := make(chan error, 1)
	s := newSite(t, func(o *Options) {
		o.Sessions = faulty{newManager(t, 1), func(ctx context.Context, emit func(int32) error) (sessions.Result, error) {
			err := emit('a')
			<-ctx.Done()
			ended <- ctx.Err()
			return sessions.Result{}, errors.Join(err, ctx.Err())
		}}
	})
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/v1/sessions/x/generate", strings.NewReader(`{"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(a.Body).ReadString('\n'); err != nil || !strings.HasPrefix(line, "data: ") {
		t.Fatal(line, err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	s.Client().CloseIdleConnections()
	waitGoroutines(t, before)
}

// goneClient fails to read an answer.
type goneClient struct {
	*httptest.ResponseRecorder
	leave func()
}

func (c goneClient) Write([]byte) (int, error) {
	c.leave()
	return 0, syscall.EPIPE
}

func TestClientThatGoesIsNoFaultOfTheServer(t *testing.T) {
	s := newSite(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, "POST", "http://localhost/v1/completions", strings.NewReader(`{"prompt":"a","stream":true}`))
	s.handler.ServeHTTP(goneClient{httptest.NewRecorder(), cancel}, r)
	if _, text := s.send("GET", "/metrics", ""); !strings.Contains(text, `farfield_http_requests_total{method="POST",path="/v1/completions",status="499"} 1`) {
		t.Error(text)
	}
}

func TestSlowReaderEndsAlone(t *testing.T) {
	ended := make(chan int, 1)
	s := newSite(t, func(o *Options) {
		o.WriteTime = time.Second // also of the request after it
		o.Sessions = faulty{newManager(t, 1), func(ctx context.Context, emit func(int32) error) (sessions.Result, error) {
			n := 0
			for ; ctx.Err() == nil && n < 1<<22; n++ { // far more than the buffers of a connection
				if err := emit('a'); err != nil {
					return sessions.Result{}, err
				}
			}
			<-ctx.Done()
			ended <- n
			return sessions.Result{}, ctx.Err()
		}}
	})
	before := runtime.NumGoroutine()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	body := `{"stream":true}`
	if _, err := fmt.Fprintf(c, "POST /v1/sessions/x/generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		t.Fatal(err)
	}
	if n := <-ended; n == 0 { // the draw did not wait for the reader, and ended with it
		t.Error("no tokens were drawn")
	}
	s.need(200, "GET", "/v1/models", "", nil)
	s.Client().CloseIdleConnections()
	waitGoroutines(t, before)
}

func TestRequestsAtATimeAreBounded(t *testing.T) {
	begun, release := make(chan bool), make(chan bool)
	s := newSite(t, func(o *Options) {
		o.MaxRequests = 1
		o.Sessions = faulty{newManager(t, 1), func(context.Context, func(int32) error) (sessions.Result, error) {
			begun <- true
			<-release
			return sessions.Result{}, nil
		}}
	})
	done := make(chan error, 1)
	go func() {
		a, err := http.Post(s.URL+"/v1/sessions/x/generate", "application/json", strings.NewReader("{}"))
		if err == nil {
			a.Body.Close()
		}
		done <- err
	}()
	<-begun
	if status, text := s.send("GET", "/v1/models", ""); status != 429 {
		t.Errorf("status %d, %s", status, text)
	}
	s.need(200, "GET", "/healthz", "", nil)
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	s.need(200, "GET", "/v1/models", "", nil)
}

func TestCutBodyIsRefused(t *testing.T) {
	s := newSite(t, nil)
	c, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{\"text\":"); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil || a.StatusCode != 400 || !strings.Contains(string(text), "it ends early") {
		t.Errorf("status %d, %s, %v", a.StatusCode, text, err)
	}
	var list struct{ Data []object }
	if s.need(200, "GET", "/v1/sessions", "", &list); len(list.Data) != 0 {
		t.Errorf("a cut body left %d sessions", len(list.Data))
	}
}

// TestLongBodyIsAnswered: a client that reads after it has written all of a body sees the answer.
func TestLongBodyIsAnswered(t *testing.T) {
	s := newSite(t, func(o *Options) { o.MaxBody = 1 << 22 })
	body := `{"text":"` + strings.Repeat("a", 10_000_000) + `"}`
	for _, head := range []string{fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body), fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)} {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\n"+head); err != nil {
			t.Fatal(err)
		}
		a, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if a.StatusCode != 413 {
			t.Errorf("status %d", a.StatusCode)
		}
		a.Body.Close()
		c.Close()
	}
}

// TestLongBodyWithoutAReaderIsAnswered: a client sees that it is refused before its body is read,
// and sends none where it expects 100 Continue.
func TestLongBodyWithoutAReaderIsAnswered(t *testing.T) {
	s := newSite(t, func(o *Options) {
		o.Keys, o.MaxBody, o.MaxImport, o.MaxBodies = []string{"first-key"}, 8<<20, 8<<20, 8<<20
	})
	s.handler.bodies.Add(8 << 20)
	defer s.handler.bodies.Add(-8 << 20)
	body := strings.Repeat("a", 7_000_000)
	length := fmt.Sprintf("Content-Length: %d\r\n", len(body))
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	for _, c := range []struct {
		status               int
		method, path, header string
		body                 string
	}{
		{401, "POST", "/v1/sessions", length, body},
		{401, "POST", "/v1/sessions", "Transfer-Encoding: chunked\r\n", chunked},
		{401, "POST", "/v1/sessions", length + "Expect: 100-continue\r\n", ""},
		{401, "POST", "/v1/sessions", length, ""}, // the answer waits for none of it
		{403, "POST", "/v1/sessions", length + "Origin: http://evil.example\r\n", body},
		{404, "POST", "/v1/nothing", length, body},
		{405, "PUT", "/v1/sessions", length, body},
		{429, "POST", "/v1/sessions", length + "Authorization: Bearer first-key\r\n", body},
		{429, "POST", "/v1/sessions", "Transfer-Encoding: chunked\r\nAuthorization: Bearer first-key\r\n", chunked},
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, c.method+" "+c.path+" HTTP/1.1\r\nHost: localhost\r\n"+c.header+"\r\n"+c.body); err != nil {
			t.Errorf("%s %s%q: %v", c.method, c.path, c.header, err)
		} else if a, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || a.StatusCode != c.status {
			t.Errorf("%s %s%q: %+v, %v, want %d", c.method, c.path, c.header, a, err, c.status)
		}
		conn.Close()
	}
	if n, bytes := s.handler.CountRunning(), s.handler.bodies.Load(); n != 0 || bytes != 8<<20 {
		t.Errorf("%d requests run, %d bytes of bodies are counted, want none and %d", n, bytes, 8<<20)
	}
}

// TestBodyWithoutAReaderHasATime: package http reads the rest of a body before it sends an answer.
func TestBodyWithoutAReaderHasATime(t *testing.T) {
	s := newSite(t, nil)
	for path, status := range map[string]int{"/v1/nothing": 404, "/healthz": 200} {
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		s.handler.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost"+path, strings.NewReader("abc")))
		if d := time.Until(w.read); w.Code != status || d <= 0 || d > bodyTime {
			t.Errorf("%s: status %d, the body has %v", path, w.Code, d)
		}
	}
}

// deadlines records the deadline of reads.
type deadlines struct {
	*httptest.ResponseRecorder
	read time.Time
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.read = at
	return nil
}

// TestBodiesCountAsTheyCome: a part of a body leaves room for other requests, whatever its length is.
func TestBodiesCountAsTheyCome(t *testing.T) {
	s := newSite(t, func(o *Options) { o.MaxImport, o.MaxBodies = 1<<17, 1<<17 })
	for _, length := range []int64{-1, 1 << 17} {
		part, client := net.Pipe()
		defer client.Close()
		done := make(chan int, 1)
		go func() {
			r := httptest.NewRequest("POST", "http://localhost/v1/sessions/import", part)
			r.ContentLength = length
			w := httptest.NewRecorder()
			s.handler.ServeHTTP(w, r)
			done <- w.Code
		}()
		if _, err := client.Write(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		s.need(201, "POST", "/v1/sessions", `{"text":"abc"}`, nil)
		s.handler.bodies.Add(1 << 17)
		if status, text := s.send("POST", "/v1/sessions", `{"text":"abc"}`); status != 429 {
			t.Errorf("status %d beside full bodies, want 429: %s", status, text)
		}
		go func() {
			client.Write(make([]byte, 1000))
			client.Close()
		}()
		if status := <-done; status != 429 {
			t.Errorf("status %d beside full bodies, want 429", status)
		}
		s.handler.bodies.Add(-1 << 17)
		if n := s.handler.bodies.Load(); n != 0 {
			t.Errorf("%d bytes of bodies are counted after the requests", n)
		}
	}
}

// TestTextsOfGoneClientsAreNotEncoded: until then, their bodies count.
func TestTextsOfGoneClientsAreNotEncoded(t *testing.T) {
	s := newSite(t, func(o *Options) { o.MaxBody = 1 << 20 })
	for range cap(s.handler.texts) {
		s.handler.texts <- struct{}{}
	}
	text := strconv.Quote(strings.Repeat("a", longText))
	for path, body := range map[string]string{
		"sessions": `{"text":` + text + `}`, "maps": `{"text":` + text + `}`, "completions": `{"prompt":[` + text + `]}`,
		"chat/completions": `{"messages":[{"role":"user","content":` + text + `}]}`,
	} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan int, 1)
		go func() {
			w := httptest.NewRecorder()
			s.handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "POST", "http://localhost/v1/"+path, strings.NewReader(body)))
			done <- w.Code
		}()
		for begin := time.Now(); s.handler.bodies.Load() < int64(len(body)) && time.Since(begin) < 10*time.Second; {
			time.Sleep(time.Millisecond)
		}
		if n := s.handler.bodies.Load(); n != int64(len(body)) {
			t.Errorf("%s: %d bytes of bodies are counted, want %d", path, n, len(body))
		}
		cancel()
		if status := <-done; status != http.StatusServiceUnavailable || s.handler.bodies.Load() != 0 {
			t.Errorf("%s: status %d, want %d; %d bytes of bodies are counted afterwards", path, status, http.StatusServiceUnavailable, s.handler.bodies.Load())
		}
	}
}

// unusedTokens encodes nothing.
type unusedTokens struct {
	byteTokens
	t *testing.T
}

func (u unusedTokens) Encode(string, bool) ([]int32, error) {
	u.t.Error("a text is encoded")
	return nil, nil
}

func TestTooManyPromptsAreNotEncoded(t *testing.T) {
	s := newSite(t, func(o *Options) { o.MaxTexts, o.Tokens = 2, unusedTokens{t: t} })
	for _, prompt := range []string{`["a","b","c"]`, `[[1],[2],[3]]`} {
		if status, text := s.send("POST", "/v1/completions", `{"prompt":`+prompt+`}`); status != 400 || !strings.Contains(text, "has 3 texts, at most 2") {
			t.Errorf("%s: status %d, %s", prompt, status, text)
		}
	}
}

// TestUnreadAnswersAreBounded: beside them, large answers are refused, but one alone is sent.
func TestUnreadAnswersAreBounded(t *testing.T) {
	s := newSite(t, func(o *Options) { o.MaxBody, o.MaxImport, o.MaxBodies = 100, 100, 100 })
	var a object
	s.need(201, "POST", "/v1/sessions", `{"text":"abc"}`, &a)
	for path, body := range map[string]string{"/v1/sessions/" + a.ID + "/export": "", "/v1/embeddings": `{"input":"a"}`} {
		for unread, status := range map[int64]int{0: 200, 1: 429} {
			r := httptest.NewRequest("POST", "http://localhost"+path, strings.NewReader(body))
			if body == "" {
				r.Method = "GET"
			}
			w := httptest.NewRecorder()
			s.handler.answers.Add(unread)
			s.handler.ServeHTTP(w, r)
			if n := s.handler.answers.Add(-unread); w.Code != status || n != 0 {
				t.Errorf("%s beside %d bytes: status %d, want %d; %d bytes are counted afterwards", path, unread, w.Code, status, n)
			}
		}
	}
}

func FuzzRequest(f *testing.F) {
	manager := newManager(f, 1)
	s := newSite(f, func(o *Options) { o.MaxTokens, o.Sessions = 8, manager })
	var a object
	s.need(201, "POST", "/v1/sessions", `{"text":"abc"}`, &a)
	paths := []string{"sessions", "completions", "chat/completions", "embeddings", "classify", "maps", "sessions/ID/append", "sessions/ID/generate", "sessions/ID/fork", "sessions/import"}
	for i := range paths {
		for _, body := range []string{`{"text":"a"}`, `{"ids":[1,2]}`, `{"prompt":"a","stop":["b"],"max_tokens":3}`, `{"input":["a"]}`, `{"messages":[{"role":"user","content":"a"}]}`, `{"max_tokens":2,"stream":true}`} {
			f.Add(uint8(i), []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, i uint8, body []byte) {
		fork, err := manager.Fork(t.Context(), a.ID)
		if err != nil {
			t.Fatal(err)
		}
		path := strings.Replace(paths[int(i)%len(paths)], "ID", fork.ID, 1)
		r := httptest.NewRequest("POST", "http://localhost/v1/"+path, strings.NewReader(string(body)))
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		kind := w.Header().Get("Content-Type")
		switch {
		case w.Code >= 500 || w.Code == http.StatusTooManyRequests:
			t.Errorf("status %d: %s", w.Code, w.Body)
		case kind == "text/event-stream":
			eventsOf(t, w.Body.String())
		case !json.Valid(w.Body.Bytes()):
			t.Errorf("%s: no JSON: %q", kind, w.Body)
		}
		for _, made := range manager.List(t.Context()) {
			if made.ID == a.ID {
				continue
			}
			if err := manager.Delete(t.Context(), made.ID); err != nil {
				t.Fatal(err)
			}
		}
	})
}
