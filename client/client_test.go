package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/client"
)

// server answers each call by its method and path, as farfield serve would.
func server(t testing.TB, answers map[string]func(w http.ResponseWriter, body string)) *client.Client {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := answers[r.Method+" "+r.URL.Path]
		if answer == nil {
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, `{"error":{"message":"no session","type":"not_found","param":"id","code":null}}`)
			return
		}
		body, _ := io.ReadAll(r.Body)
		answer(w, string(body))
	}))
	if t != nil {
		t.Cleanup(s.Close)
	}
	return &client.Client{URL: s.URL + "/", HTTP: s.Client()}
}

func say(status int, text string) func(http.ResponseWriter, string) {
	return func(w http.ResponseWriter, _ string) {
		w.WriteHeader(status)
		io.WriteString(w, text)
	}
}

func Example() {
	c := server(nil, map[string]func(http.ResponseWriter, string){
		"POST /v1/sessions":             say(201, `{"id":"5f","tokens":4,"bytes":9000}`),
		"POST /v1/sessions/5f/append":   say(200, `{"tokens":7}`),
		"POST /v1/sessions/5f/fork":     say(201, `{"id":"60","tokens":7}`),
		"POST /v1/sessions/60/generate": say(200, `{"ids":[5,6],"text":" the end","tokens":9}`),
	}) // c := &client.Client{URL: "http://127.0.0.1:8181"}
	ctx := context.Background()
	s, err := c.Create(ctx, client.Input{Text: "Once upon a time"})
	if err != nil {
		log.Fatal(err)
	}
	tokens, err := c.Append(ctx, s.ID, client.Input{Text: " there was"})
	if err != nil {
		log.Fatal(err)
	}
	other, err := c.Fork(ctx, s.ID) // s stays as it is
	if err != nil {
		log.Fatal(err)
	}
	g, err := c.Generate(ctx, other.ID, client.Draw{MaxTokens: 2}, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d tokens, then%s\n", tokens, g.Text)
	// Output: 7 tokens, then the end
}

const tokens = "data: {\"id\":5,\"text\":\" the\"}\n\n: a comment\n\ndata: {\"id\":6,\"text\":\"\"}\n\n"

func TestStreamEndsWithItsLastEvent(t *testing.T) {
	for name, c := range map[string]struct{ stream, err string }{
		"whole":        {tokens + "data: {\"ids\":[5,6],\"text\":\" the\",\"tokens\":9}\n\ndata: [DONE]\n\n", ""},
		"cut":          {tokens, "before its last event"},
		"cut at DONE":  {tokens + "data: {\"ids\":[5,6],\"text\":\" the\",\"tokens\":9}\n\n", "before its last event"},
		"no object":    {tokens + "data: [DONE]\n\n", "without a final object"},
		"an error":     {tokens + "data: {\"error\":{\"message\":\"out of room\"}}\n\n", "out of room"},
		"no JSON":      {"data: {\"id\":\n\n", "unexpected end"},
		"an empty one": {"", "before its last event"},
	} {
		cl := server(t, map[string]func(http.ResponseWriter, string){"POST /v1/sessions/a/generate": func(w http.ResponseWriter, body string) {
			if !strings.Contains(body, `"stream":true`) {
				t.Errorf("%s: body %s", name, body)
			}
			io.WriteString(w, c.stream)
		}})
		n := 0
		g, err := cl.Generate(t.Context(), "a", client.Draw{MaxTokens: 2}, func(client.Token) error { n++; return nil })
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: error %v, want %q", name, err, c.err)
		}
		if err == nil && (n != 2 || g.Text != " the" || g.Tokens != 9) {
			t.Errorf("%s: %d tokens, %+v", name, n, g)
		}
	}
}

func TestErrorEventsHaveTheirStatus(t *testing.T) {
	for code, want := range map[string]client.Error{"null": {Status: 500},
		`"session_damaged"`: {Status: 410}, `"stopping"`: {Status: 503, RetryAfter: time.Second}, `"full"`: {Status: 429, RetryAfter: time.Second}} {
		event := tokens + `data: {"error":{"message":"m","type":"server_error","param":null,"code":` + code + "}}\n\n"
		c := server(t, map[string]func(http.ResponseWriter, string){"POST /v1/sessions/a/generate": say(200, event)})
		_, err := c.Generate(t.Context(), "a", client.Draw{MaxTokens: 2}, func(client.Token) error { return nil })
		want.Message = "m"
		if e := new(client.Error); !errors.As(err, &e) || *e != want {
			t.Errorf("code %s: error %#v", code, err)
		}
	}
}

func TestStreamEndsWithAnErrorOfEmit(t *testing.T) {
	c := server(t, map[string]func(http.ResponseWriter, string){"POST /v1/sessions/a/generate": say(200, tokens)})
	enough := errors.New("enough")
	if _, err := c.Generate(t.Context(), "a", client.Draw{MaxTokens: 2}, func(client.Token) error { return enough }); !errors.Is(err, enough) {
		t.Error(err)
	}
}

func TestErrorsHaveStatusAndField(t *testing.T) {
	c := server(t, map[string]func(http.ResponseWriter, string){
		"GET /v1/sessions": func(w http.ResponseWriter, _ string) {
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(429)
		},
		"GET /v1/models": say(200, "<html>"),
	})
	var e *client.Error
	if _, err := c.Get(t.Context(), "a/../b"); !errors.As(err, &e) || e.Status != 404 || e.Param != "id" || e.Message != "no session" {
		t.Errorf("%v", err)
	}
	if _, err := c.List(t.Context()); !errors.As(err, &e) || e.Status != 429 || e.RetryAfter != 3*time.Second || e.Message != "Too Many Requests" {
		t.Errorf("%v", err)
	}
	if _, err := c.Models(t.Context()); err == nil || errors.As(err, &e) && e.Status == 200 {
		t.Errorf("an answer that is no JSON: %v", err)
	}
}

func TestVectorsAndClassesKeepTheOrderOfTexts(t *testing.T) {
	c := server(t, map[string]func(http.ResponseWriter, string){
		"POST /v1/embeddings": func(w http.ResponseWriter, body string) {
			var in struct{ Input []string }
			if err := json.Unmarshal([]byte(body), &in); err != nil || len(in.Input) != 2 {
				t.Errorf("%s: %v", body, err)
			}
			io.WriteString(w, `{"data":[{"index":1,"embedding":[2]},{"index":0,"embedding":[1]}]}`)
		},
		"POST /v1/classify": say(200, `{"data":[{"index":0,"class":"spam","probabilities":{"spam":0.75,"ham":0.25},"tokens":3,"truncated":true}]}`),
	})
	v, err := c.Embed(t.Context(), "one", "two")
	if err != nil || v[0][0] != 1 || v[1][0] != 2 {
		t.Errorf("%v, %v", v, err)
	}
	k, err := c.Classify(t.Context(), "one")
	if err != nil || k[0].Name != "spam" || k[0].Probabilities["ham"] != 0.25 || !k[0].Truncated {
		t.Errorf("%+v, %v", k, err)
	}
	if _, err := c.Classify(t.Context(), "one", "two"); err == nil {
		t.Error("one class of two texts is no error")
	}
}

func TestSnapshotsPassAsTheyAre(t *testing.T) {
	c := server(t, map[string]func(http.ResponseWriter, string){
		"GET /v1/sessions/a/export": say(200, "\x00state"),
		"POST /v1/sessions/import": func(w http.ResponseWriter, body string) {
			if body != "\x00state" {
				t.Errorf("%q", body)
			}
			w.WriteHeader(201)
			io.WriteString(w, `{"id":"b","tokens":3,"bytes":6}`)
		},
		"DELETE /v1/sessions/b": say(204, ""),
	})
	var state strings.Builder
	if err := c.Export(t.Context(), "a", &state); err != nil {
		t.Fatal(err)
	}
	s, err := c.Import(t.Context(), strings.NewReader(state.String()))
	if err != nil || s != (client.Session{ID: "b", Tokens: 3, Bytes: 6}) {
		t.Errorf("%+v, %v", s, err)
	}
	if err := c.Delete(t.Context(), s.ID); err != nil {
		t.Error(err)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "snapshot"))
	if err != nil {
		t.Fatal(err)
	}
	_, err1 := file.WriteString(state.String())
	_, err2 := file.Seek(0, io.SeekStart)
	_, err3 := c.Import(t.Context(), file)
	if err := errors.Join(err1, err2, err3, file.Close()); err != nil {
		t.Errorf("an import of a file: %v", err)
	}
}

func TestTextsAreUTF8(t *testing.T) {
	c := server(t, nil)
	_, err1 := c.Create(t.Context(), client.Input{Text: "é\xff"})
	_, err2 := c.Embed(t.Context(), "one", "\xc3")
	_, err3 := c.Classify(t.Context(), "\ufffd", "a\x80")
	for want, err := range map[string]error{"text: byte 2, 0xff,": err1, "input[1]: byte 0, 0xc3,": err2, "input[1]: byte 1, 0x80,": err3} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestEmptyTextIsSent(t *testing.T) {
	for want, in := range map[string]client.Input{
		`{"text":""}`:            {},
		`{"text":"a"}`:           {Text: "a"},
		`{"ids":[]}`:             {IDs: []int32{}},
		`{"ids":[1],"text":"a"}`: {Text: "a", IDs: []int32{1}}, // the server refuses it
	} {
		if got, err := json.Marshal(in); err != nil || string(got) != want {
			t.Errorf("%+v is %s, want %s, %v", in, got, want, err)
		}
	}
}

func TestTextsAndRewinds(t *testing.T) {
	c := server(t, map[string]func(http.ResponseWriter, string){
		"GET /v1/sessions/5f": say(200, `{"id":"5f","text":"abc","ids":[7,8],"unknown_tokens":3}`),
		"POST /v1/sessions/5f/rewind": func(w http.ResponseWriter, body string) {
			say(200, `{"id":"5f","tokens":4}`)(w, body)
			if body != `{"tokens":4}` {
				t.Errorf("body is %s", body)
			}
		},
	})
	if x, err := c.Text(t.Context(), "5f"); err != nil || x.Text != "abc" || len(x.IDs) != 2 || x.Unknown != 3 {
		t.Errorf("%+v, %v", x, err)
	}
	if s, err := c.Rewind(t.Context(), "5f", 4); err != nil || s.Tokens != 4 {
		t.Errorf("%+v, %v", s, err)
	}
}
