package serve

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/internal/chat"
	"github.com/farfield-ml/farfield/internal/sessions"
)

// completed is an answer of completions, with log-probabilities.
type completed struct {
	Choices []struct {
		Text     string
		Index    int
		Reason   string `json:"finish_reason"`
		Logprobs *struct {
			Tokens  []string
			Logs    []*float64           `json:"token_logprobs"`
			Top     []map[string]float64 `json:"top_logprobs"`
			Offsets []int                `json:"text_offset"`
		}
	}
	Usage struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
	}
}

// A prompt without an answer has the log-probabilities of its tokens, which are those of drawing them.
func TestEchoTellsProbabilitiesOfThePrompt(t *testing.T) {
	s := newSite(t, nil)
	var drawn, echoed, whole completed
	s.need(200, "POST", "/v1/completions", `{"prompt":"ab","max_tokens":6,"temperature":0,"logprobs":3}`, &drawn)
	first := drawn.Choices[0]
	prompt, _ := byteTokens{}.Encode("ab", true)
	ids := slices.Clone(prompt)
	result, err := s.handler.o.Sessions.Complete(t.Context(), prompt, sessions.Draw{MaxTokens: 6, StopAtEnd: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ids = append(ids, result.IDs...)
	text, err := json.Marshal(ids)
	if err != nil {
		t.Fatal(err)
	}
	s.need(200, "POST", "/v1/completions", `{"prompt":`+string(text)+`,"max_tokens":0,"echo":true,"logprobs":3}`, &echoed)
	l := echoed.Choices[0].Logprobs
	if n := len(ids); len(l.Tokens) != n || len(l.Logs) != n || l.Logs[0] != nil || l.Top[0] != nil || echoed.Usage.Completion != 0 {
		t.Fatalf("%d tokens have %d log-probabilities: %+v", n, len(l.Logs), l)
	}
	for i, log := range first.Logprobs.Logs {
		at := len(prompt) + i
		if *l.Logs[at] != *log || l.Tokens[at] != first.Logprobs.Tokens[i] {
			t.Errorf("token %d: %v of the prompt, %v drawn", i, *l.Logs[at], *log)
		}
		most := math.Inf(-1)
		for _, x := range l.Top[at] {
			most = max(most, x)
		}
		if most != *log { // greedy, as lm-evaluation-harness sees it
			t.Errorf("token %d: %v, the most likely has %v", i, *log, most)
		}
	}
	s.need(200, "POST", "/v1/completions", `{"prompt":"ab","max_tokens":6,"temperature":0,"logprobs":0,"echo":true}`, &whole)
	if w := whole.Choices[0]; w.Text != "ab"+first.Text || len(w.Logprobs.Logs) != len(ids) || w.Logprobs.Offsets[2] != 1 {
		t.Errorf("echo is %+v", w)
	}
}

// A stream has the texts and log-probabilities of the answers to several prompts, n to each.
func TestStreamOfSeveralPromptsJoinsToTheAnswers(t *testing.T) {
	s := newSite(t, nil)
	const body = `{"prompt":["ab","c"],"n":2,"max_tokens":9,"seed":4,"logprobs":1`
	var whole completed
	s.need(200, "POST", "/v1/completions", body+"}", &whole)
	if len(whole.Choices) != 4 || whole.Choices[0].Text == whole.Choices[1].Text || whole.Usage.Prompt != 5 {
		t.Fatalf("answers are %+v", whole)
	}
	_, text := s.send("POST", "/v1/completions", body+`,"stream":true}`)
	texts, logs, reasons := make([]string, 4), make([][]float64, 4), make([]string, 4)
	for _, data := range eventsOf(t, text) {
		var part completed
		if json.Unmarshal([]byte(data), &part) != nil {
			continue // [DONE]
		}
		for _, c := range part.Choices {
			texts[c.Index] += c.Text
			reasons[c.Index] += c.Reason
			for _, x := range c.Logprobs.Logs {
				logs[c.Index] = append(logs[c.Index], *x)
			}
		}
	}
	for i, c := range whole.Choices {
		var want []float64
		for _, x := range c.Logprobs.Logs {
			want = append(want, *x)
		}
		if texts[i] != c.Text || reasons[i] != c.Reason || !slices.Equal(logs[i], want) {
			t.Errorf("answer %d: %q with %v, want %q with %v", i, texts[i], logs[i], c.Text, want)
		}
	}
	var best completed
	s.need(200, "POST", "/v1/completions", `{"prompt":"ab","n":1,"best_of":6,"max_tokens":9,"seed":4}`, &best)
	var all completed
	s.need(200, "POST", "/v1/completions", `{"prompt":"ab","n":6,"max_tokens":9,"seed":4,"logprobs":0}`, &all)
	at, most := 0, math.Inf(-1)
	for i, c := range all.Choices {
		var sum float64
		for _, x := range c.Logprobs.Logs {
			sum += *x / float64(len(c.Logprobs.Logs))
		}
		if sum > most {
			at, most = i, sum
		}
	}
	if best.Choices[0].Text != all.Choices[at].Text || best.Choices[0].Logprobs != nil || best.Usage.Completion != all.Usage.Completion {
		t.Errorf("the best of six is %+v, want %q", best, all.Choices[at].Text)
	}
}

// Biases and penalties change what is drawn, and neutral ones nothing.
func TestLogitsAreChanged(t *testing.T) {
	s := newSite(t, nil)
	text := func(more string) string {
		var c completed
		s.need(200, "POST", "/v1/completions", `{"prompt":"aaaa","max_tokens":12,"temperature":0`+more+"}", &c)
		return c.Choices[0].Text
	}
	plain := text("")
	if got := text(`,"logit_bias":{"98":100}`); got != strings.Repeat("b", 12) {
		t.Errorf("with a bias for b: %q", got)
	}
	for _, more := range []string{`,"frequency_penalty":0,"presence_penalty":0,"repetition_penalty":1,"logit_bias":{"3":0},"min_p":0,"top_k":-1`, `,"repeat_penalty":1.0`} {
		if got := text(more); got != plain {
			t.Errorf("%s: %q, without it %q", more, got, plain)
		}
	}
	if strings.Count(plain, plain[:1]) < 2 {
		t.Fatalf("the text %q repeats nothing", plain)
	}
	for _, more := range []string{`,"frequency_penalty":2`, `,"presence_penalty":2`, `,"repetition_penalty":10`} {
		if got := text(more); strings.Count(got, plain[:1]) >= strings.Count(plain, plain[:1]) {
			t.Errorf("%s: %q, without it %q", more, got, plain)
		}
	}
}

// Answers are held to JSON, in completions and chat, streamed and whole, and greedy or not.
func TestAnswersAreHeldToASchema(t *testing.T) {
	s := newSite(t, func(o *Options) { o.EndTokens = []int32{257} })
	const format = `,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object","properties":{"a":{"type":"integer"},"b":{"enum":["x","y"]}},"required":["a","b"],"additionalProperties":false}}}`
	for seed := range 6 {
		var c completed
		s.need(200, "POST", "/v1/completions", fmt.Sprintf(`{"prompt":"a","max_tokens":400,"seed":%d,"temperature":%d%s}`, seed, seed%3, format), &c)
		var x struct {
			A *int64
			B string
		}
		if err := json.Unmarshal([]byte(c.Choices[0].Text), &x); err != nil || x.A == nil || x.B != "x" && x.B != "y" || c.Choices[0].Reason != "stop" {
			t.Errorf("seed %d: %+v: %v", seed, c.Choices[0], err)
		}
	}
	var a answer
	s.need(200, "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"max_tokens":400,"seed":2`+format+"}", &a)
	if !json.Valid([]byte(a.Choices[0].Message.Content)) {
		t.Errorf("chat answers %q", a.Choices[0].Message.Content)
	}
	var loose completed
	s.need(200, "POST", "/v1/completions", `{"prompt":"a","max_tokens":30,"seed":2,"response_format":{"type":"json_object"}}`, &loose)
	if loose.Choices[0].Text[0] != '{' {
		t.Errorf("an object is %q", loose.Choices[0].Text)
	}
}

// spoken answers with a text.
type spoken struct {
	*sessions.Manager
	text string
}

func (x spoken) Complete(_ context.Context, _ []int32, d sessions.Draw, emit func(int32) error) (sessions.Result, error) {
	ids, _ := byteTokens{}.Encode(x.text, false)
	for _, id := range ids {
		if emit == nil {
			break
		}
		if err := emit(id); err != nil {
			return sessions.Result{}, err
		}
	}
	return sessions.Result{IDs: ids, Reason: sessions.Stopped}, nil
}

// Calls of tools come back in the common formats; other texts stay texts.
func TestCallsOfToolsAreFound(t *testing.T) {
	template, err := chat.Parse("{% for t in tools %}{{ t.function.name }} {% endfor %}{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}({{ c.function.arguments.x }}){% endfor %}\n{% endfor %}")
	if err != nil {
		t.Fatal(err)
	}
	const tools = `,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]}}},{"type":"function","function":{"name":"g"}}]`
	type call struct {
		Index    *int
		ID, Type string
		Function struct{ Name, Arguments string }
	}
	type choice struct {
		Message, Delta struct {
			Content   *string
			ToolCalls []call `json:"tool_calls"`
		}
		Reason string `json:"finish_reason"`
	}
	for _, c := range []struct{ text, content, calls string }{
		{"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>", "", `f{"x": 1}`},
		{"I call.\n<tool_call>{\"name\":\"f\",\"arguments\":{\"x\":1}}</tool_call>\n<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call>", "I call.", `f{"x":1} g{}`},
		{`{"name": "f", "parameters": {"x": 2}}`, "", `f{"x": 2}`},
		{`[TOOL_CALLS][{"name":"f","arguments":{"x":3}},{"name":"g","arguments":{}}]`, "", `f{"x":3} g{}`},
		{`[{"name":"f","arguments":"{\"x\":3}"}]`, "", `f{"x":3}`},
		{"<|python_tag|>" + `{"name":"g","parameters":{}}`, "", `g{}`},
		{`<function=f>{"x":4}</function>`, "", `f{"x":4}`},
		{"<tool_call>\n<function=f>\n<parameter=x>\n5\n</parameter>\n<parameter=y>\na \"b\"\n</parameter>\n</function>\n</tool_call>", "", `f{"x":5,"y":"a \"b\""}`},
		{"no call", "no call", ""},
		{`{"name":"h","arguments":{}}`, `{"name":"h","arguments":{}}`, ""},
		{"<tool_call>{\"name\":</tool_call>", "<tool_call>{\"name\":</tool_call>", ""},
		{"1 < 2 and <tool", "1 < 2 and <tool", ""},
	} {
		s := newSite(t, func(o *Options) {
			o.Chat, o.Sessions = &Chat{Template: template}, spoken{o.Sessions.(*sessions.Manager), c.text}
		})
		show := func(list []call) string {
			var parts []string
			for _, x := range list {
				if x.Type != "function" || !strings.HasPrefix(x.ID, "call_") {
					t.Errorf("a call is %+v", x)
				}
				parts = append(parts, x.Function.Name+x.Function.Arguments)
			}
			return strings.Join(parts, " ")
		}
		var whole struct{ Choices []choice }
		s.need(200, "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}]`+tools+"}", &whole)
		m, reason := whole.Choices[0].Message, whole.Choices[0].Reason
		content := ""
		if m.Content != nil {
			content = *m.Content
		}
		if show(m.ToolCalls) != c.calls || content != c.content || (reason == "tool_calls") != (c.calls != "") {
			t.Errorf("%q: content %q, calls %q, %s, want %q, %q", c.text, content, show(m.ToolCalls), reason, c.content, c.calls)
		}
		_, text := s.send("POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"stream":true`+tools+"}")
		joined, reason := "", ""
		var calls []call
		for _, data := range eventsOf(t, text) {
			var part struct{ Choices []choice }
			if json.Unmarshal([]byte(data), &part) != nil || len(part.Choices) == 0 {
				continue
			}
			if d := part.Choices[0].Delta; d.Content != nil {
				joined += *d.Content
			}
			calls = append(calls, part.Choices[0].Delta.ToolCalls...)
			reason += part.Choices[0].Reason
		}
		if show(calls) != c.calls || strings.TrimSpace(joined) != c.content || (reason == "tool_calls") != (c.calls != "") {
			t.Errorf("%q: a stream has %q, calls %q, %s", c.text, joined, show(calls), reason)
		}
	}
	// A call that is asked for is drawn, and its answer is rendered.
	s := newSite(t, func(o *Options) { o.Chat, o.EndTokens = &Chat{Template: template}, []int32{257} })
	for choice, want := range map[string]string{`"required"`: "", `{"type":"function","function":{"name":"f"}}`: "f"} {
		var a struct{ Choices []choice1 }
		s.need(200, "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]},{"role":"tool","tool_call_id":"1","content":"b"}],"max_tokens":400,"seed":3,"tool_choice":`+choice+tools+"}", &a)
		list := a.Choices[0].Message.ToolCalls
		if len(list) != 1 || want != "" && list[0].Function.Name != want || !json.Valid([]byte(list[0].Function.Arguments)) {
			t.Errorf("%s: calls are %+v", choice, list)
		}
	}
}

type choice1 struct {
	Message struct {
		ToolCalls []struct {
			Function struct{ Name, Arguments string }
		} `json:"tool_calls"`
	}
}

// Ids that this tokenizer gives are read as their texts, and documents are sorted by their scores.
func TestIDsScoresAndTokens(t *testing.T) {
	s := newSite(t, func(o *Options) { o.Aliases = []string{"other-name"} })
	type vectors struct {
		Data []struct {
			Embedding []float64
			Tokens    int
			Truncated bool
		}
	}
	var texts, ids, one vectors
	s.need(200, "POST", "/v1/embeddings", `{"model":"other-name","input":["ab","c"]}`, &texts)
	s.need(200, "POST", "/v1/embeddings", `{"input":[[256,97,98],[99]]}`, &ids)
	s.need(200, "POST", "/v1/embeddings", `{"input":[97,98]}`, &one)
	if fmt.Sprint(texts) != fmt.Sprint(ids) || fmt.Sprint(one.Data[0]) != fmt.Sprint(texts.Data[0]) {
		t.Errorf("vectors of texts are %v, of ids %v and %v", texts, ids, one)
	}
	var ranked struct {
		Results []struct {
			Index    int
			Score    float64 `json:"relevance_score"`
			Document *struct{ Text string }
		}
	}
	s.need(200, "POST", "/v1/rerank", `{"query":"a","documents":["b",{"text":"aa"},"a"],"top_n":2,"return_documents":true}`, &ranked)
	if r := ranked.Results; len(r) != 2 || r[0].Index != 1 || r[0].Score != 2 || r[0].Document.Text != "aa" || r[1].Index != 2 {
		t.Errorf("documents are %+v", r)
	}
	var tokens struct {
		IDs    []int32
		Tokens []string
		Count  int
		Text   string
	}
	s.need(200, "POST", "/v1/tokenize", `{"text":"aé"}`, &tokens)
	if fmt.Sprint(tokens) != `{[256 97 195 169] [ a bytes:\xc3 bytes:\xa9] 4 aé}` {
		t.Errorf("tokens are %v", tokens)
	}
	s.need(200, "POST", "/v1/tokenize", `{"text":"a","add_special_tokens":false}`, &tokens)
	if tokens.Count != 1 {
		t.Errorf("tokens are %v", tokens)
	}
	var list struct {
		Data []struct{ ID string }
	}
	s.need(200, "GET", "/v1/models", "", &list)
	if len(list.Data) != 2 || list.Data[1].ID != "other-name" {
		t.Errorf("models are %v", list)
	}
	s.need(200, "GET", "/health", "", nil)
}

// sendZipped sends a body of a content encoding.
func (s *site) sendZipped(coding string, body []byte) (int, string) {
	r, err := http.NewRequest("POST", s.URL+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Encoding", coding)
	return s.do(r)
}

func TestZippedBodiesAreReadOrRefused(t *testing.T) {
	s := newSite(t, nil)
	zip := func(text string) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write([]byte(text))
		_ = w.Close()
		return b.Bytes()
	}
	body := zip(`{"prompt":"a","max_tokens":1}`)
	for _, c := range []struct {
		coding string
		body   []byte
		status int
	}{
		{"gzip", body, 200}, {"identity", []byte(`{"prompt":"a","max_tokens":1}`), 200}, {"br", body, 415}, {"gzip", body[:len(body)-9], 400},
		{"gzip", []byte(`{"prompt":"a"}`), 400}, {"gzip", zip(`{"prompt":"` + strings.Repeat("a", 1<<20) + `"}`), 413},
	} {
		if status, text := s.sendZipped(c.coding, c.body); status != c.status {
			t.Errorf("%s of %d bytes: status %d, want %d: %.200s", c.coding, len(c.body), status, c.status, text)
		}
	}
	if n := s.handler.bodies.Load(); n != 0 {
		t.Errorf("%d bytes of bodies are left", n)
	}
}

func TestListedOriginsMayAsk(t *testing.T) {
	s := newSite(t, func(o *Options) { o.Origins = []string{"https://example.org"} })
	for origin, want := range map[string]int{"https://example.org": 200, "https://example.com": 403} {
		status, _, header := s.ask("/v1/models", "Origin", origin, "Sec-Fetch-Site", "cross-site")
		if status != want || (header.Get("Access-Control-Allow-Origin") == origin) != (want == 200) {
			t.Errorf("%s: status %d, %v", origin, status, header)
		}
	}
	r, err := http.NewRequest("OPTIONS", s.URL+"/v1/chat/completions", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"Origin": "https://example.org", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"} {
		r.Header.Set(name, value)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	if a.StatusCode != 204 || a.Header.Get("Access-Control-Allow-Headers") != "authorization" || !strings.Contains(a.Header.Get("Access-Control-Allow-Methods"), "POST") {
		t.Errorf("status %d, %v", a.StatusCode, a.Header)
	}
}

// Sessions tell their text, go back to an earlier length, and end a text at a stop.
func TestSessionsTellTheirTextAndRewind(t *testing.T) {
	s := newSite(t, nil)
	var a object
	s.need(201, "POST", "/v1/sessions", `{"text":"abc"}`, &a)
	path := "/v1/sessions/" + a.ID
	var first, again, stopped drawn
	s.need(200, "POST", path+"/generate", `{"max_tokens":8,"temperature":0}`, &first)
	type told struct {
		Text    string
		IDs     []int32
		Tokens  int64
		Unknown int64 `json:"unknown_tokens"`
	}
	var now told
	s.need(200, "GET", path+"?text", "", &now)
	if now.Text != "abc"+first.Text || len(now.IDs) != 12 || now.Tokens != 12 {
		t.Errorf("a session is %+v", now)
	}
	s.need(200, "POST", path+"/rewind", `{"tokens":4}`, &a)
	if a.Tokens != 4 {
		t.Errorf("%d tokens are left", a.Tokens)
	}
	s.need(200, "POST", path+"/generate", `{"max_tokens":8,"temperature":0}`, &again)
	if !slices.Equal(first.IDs, again.IDs) {
		t.Errorf("after a rewind %v, before %v", again.IDs, first.IDs)
	}
	s.need(200, "POST", path+"/rewind", `{"tokens":4}`, &a)
	stop, err := json.Marshal(first.Text[2:3])
	if err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(first.Text, first.Text[2:3])
	s.need(200, "POST", path+"/generate", `{"max_tokens":8,"temperature":0,"stop":`+string(stop)+"}", &stopped)
	if stopped.Text != before || stopped.FinishReason != "stop" || len(stopped.IDs) != len(before)+1 || stopped.Tokens != int64(4+len(stopped.IDs)) {
		t.Errorf("stopped at %s: %+v of %q", stop, stopped, first.Text)
	}
}

// The list of sessions tells how each begins and when it was used.
func TestSessionsAreListedByTheirBeginnings(t *testing.T) {
	s := newSite(t, nil)
	long := strings.Repeat("word ", 12) + "w\u00f6\u00e4" // 64 tokens end in the middle of a character
	for _, text := range []string{"", "abc", long + "rest"} {
		s.need(201, "POST", "/v1/sessions", `{"text":"`+text+`"}`, nil)
	}
	var list struct {
		Data []struct {
			Tokens, Used int64
			Begin        string
		}
	}
	s.need(200, "GET", "/v1/sessions?begin", "", &list)
	got := map[int64]string{}
	for _, x := range list.Data {
		if got[x.Tokens] = x.Begin; x.Used == 0 {
			t.Errorf("%+v has no time", x)
		}
	}
	if want := map[int64]string{1: "", 4: "abc", 70: strings.TrimSuffix(long, "\u00e4")}; !maps.Equal(got, want) {
		t.Errorf("beginnings are %v, want %v", got, want)
	}
	_, text := s.send("GET", "/v1/sessions", "")
	if strings.Contains(text, "begin") {
		t.Errorf("beginnings that were not asked for: %s", text)
	}
}

// stream begins a long answer of a session; stop ends it.
func (s *site) stream(id string) (body io.Reader, stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	r, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/v1/sessions/"+id+"/generate", strings.NewReader(`{"max_tokens":4000,"stream":true}`))
	if err != nil {
		s.t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { answer.Body.Close() })
	return answer.Body, cancel
}

// A session says while a request holds it.
func TestBusySessionsSaySo(t *testing.T) {
	s := newSite(t, nil)
	var a object
	s.need(201, "POST", "/v1/sessions", `{"text":"abc"}`, &a)
	body, stop := s.stream(a.ID)
	defer stop()
	if _, err := body.Read(make([]byte, 64)); err != nil { // the first token is there
		t.Fatal(err)
	}
	if _, text := s.send("GET", "/v1/sessions/"+a.ID, ""); !strings.Contains(text, `"busy":true`) {
		t.Errorf("during a stream: %s", text)
	}
	stop()
	for {
		if _, text := s.send("GET", "/v1/sessions/"+a.ID, ""); !strings.Contains(text, "busy") {
			break
		}
		time.Sleep(time.Millisecond)
	}
}

// A client that goes away in the middle of a stream leaves what it was sent in the session.
func TestStoppedStreamKeepsWhatWasSent(t *testing.T) {
	s := newSite(t, nil)
	var a object
	s.need(201, "POST", "/v1/sessions", `{"text":"abc"}`, &a)
	body, stop := s.stream(a.ID)
	defer stop()
	begin := make([]byte, 600)
	if _, err := body.Read(begin); err != nil {
		t.Fatal(err)
	}
	stop()
	seen := int64(bytes.Count(begin, []byte("\n\n")))
	deadline := time.Now().Add(20 * time.Second)
	for {
		status, text := s.send("POST", "/v1/sessions/"+a.ID+"/append", `{"text":"x"}`)
		if status == 200 {
			break
		}
		if status != 409 || time.Now().After(deadline) {
			t.Fatalf("status %d, %s", status, text)
		}
	}
	var now object
	if s.need(200, "GET", "/v1/sessions/"+a.ID, "", &now); seen < 1 || now.Tokens < 4+seen+1 || now.Tokens >= 4004 {
		t.Errorf("%d tokens after %d events", now.Tokens, seen)
	}
}

// A request that fails has one line with its error, and its answer does not say where files lie.
func TestFailuresAreLoggedAndHidePaths(t *testing.T) {
	failed := fmt.Errorf("store: %w", &fs.PathError{Op: "write", Path: "/srv/secret/sessions.db", Err: errors.New("no space left")})
	for _, all := range []bool{false, true} {
		var log bytes.Buffer
		s := newSite(t, func(o *Options) {
			o.Sessions = faulty{o.Sessions.(*sessions.Manager), func(context.Context, func(int32) error) (sessions.Result, error) { return sessions.Result{}, failed }}
			o.Log, o.LogAll = slog.New(slog.NewTextHandler(&log, nil)), all
		})
		status, text := s.send("POST", "/v1/sessions/x/generate", "{}")
		if status != 500 || strings.Contains(text, "secret") || !strings.Contains(text, "write sessions.db: no space left") {
			t.Errorf("status %d, %s", status, text)
		}
		s.need(200, "GET", "/v1/models", "", nil)
		s.Close()
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if want := map[bool]int{false: 1, true: 2}[all]; len(lines) != want || !strings.Contains(lines[0], "level=ERROR") || !strings.Contains(lines[0], "/srv/secret/sessions.db") ||
			!strings.Contains(lines[0], "path=/v1/sessions/{id}/generate") || !strings.Contains(lines[0], "status=500") {
			t.Errorf("lines are %q", lines)
		}
	}
	var log bytes.Buffer
	now := time.Unix(0, 0)
	s := newSite(t, func(o *Options) {
		o.Log, o.Slow = slog.New(slog.NewTextHandler(&log, nil)), time.Second
		o.Clock = func() time.Time { now = now.Add(600 * time.Millisecond); return now }
	})
	s.need(200, "GET", "/v1/models", "", nil)
	s.Close()
	if !strings.Contains(log.String(), `msg="slow request"`) {
		t.Errorf("lines are %q", log.String())
	}
}

func TestMetricsOfTheProcessAndTheFirstToken(t *testing.T) {
	s := newSite(t, nil)
	s.need(200, "POST", "/v1/completions", `{"prompt":"a","max_tokens":2}`, nil)
	_, text := s.send("GET", "/metrics", "")
	for _, want := range []string{"farfield_first_token_seconds_count 1", "farfield_store_errors_total 0", "farfield_states_recomputed_total 0", "go_goroutines ", "farfield_goroutines ", "farfield_tokens_drawn_total 2"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in\n%s", want, text)
		}
	}
}

var write = flag.Bool("write", false, "write docs/openapi.json")

// The description of the endpoints has each of them, and docs/openapi.json is what the server answers
// (go test ./internal/serve -run Description -write).
func TestDescriptionHasEachEndpoint(t *testing.T) {
	s := newSite(t, nil)
	var routes, described []string
	for _, r := range s.handler.routes() {
		routes = append(routes, r.method+" "+r.path)
	}
	for _, o := range operations {
		described = append(described, o.method+" "+o.path)
	}
	slices.Sort(routes)
	slices.Sort(described)
	if !slices.Equal(routes, described) {
		t.Errorf("endpoints are %q, described are %q", routes, described)
	}
	text, err := describeAPI()
	if err != nil {
		t.Fatal(err)
	}
	if _, answer := s.send("GET", "/openapi.json", ""); answer != string(text) {
		t.Error("/openapi.json has another text")
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, text, "", " "); err != nil {
		t.Fatal(err)
	}
	indented.WriteByte('\n')
	path := filepath.Join("..", "..", "docs", "openapi.json")
	if *write {
		if err := os.WriteFile(path, indented.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if page, err := os.ReadFile(path); err != nil || !bytes.Equal(page, indented.Bytes()) {
		t.Errorf("%s differs: go test ./internal/serve -run Description -write; %v", path, err)
	}
}

// FuzzCalls finds calls in any text without a panic, and a text of a stream joins to what was drawn.
func FuzzCalls(f *testing.F) {
	f.Add("<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>")
	f.Add("<function=f><parameter=x>1</parameter></function>")
	f.Add("a [TOOL_CALLS][{\"name\":\"f\"}]")
	f.Fuzz(func(t *testing.T, text string) {
		tools := &toolset{names: []string{"f"}}
		for _, c := range second(tools.parse(text)) {
			if c.Function.Name != "f" || !json.Valid([]byte(c.Function.Arguments)) {
				t.Errorf("a call is %+v", c)
			}
		}
		held := heldText{tools: tools}
		joined := ""
		for i := range len(text) {
			joined += held.add(text[i : i+1])
		}
		if joined+held.text != text {
			t.Errorf("%q joins to %q", text, joined+held.text)
		}
	})
}

func second[A, B any](_ A, b B) B { return b }
