// Package client calls a server that "farfield serve" started: sessions that survive restarts,
// embeddings and classes.
//
// A session is a text that the model has read, kept together with the model's state after it.
// Append adds text, Generate lets the model continue, and Fork copies the session with its state.
// If the server has a store, what a call without an error has done is on disk.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A Client calls one server. Several goroutines may use it at once.
type Client struct {
	URL  string       // such as http://127.0.0.1:8181
	Key  string       // sent as a bearer token; "": none
	HTTP *http.Client // nil: http.DefaultClient
}

// An Error is the answer of a server that did not do what was asked.
type Error struct {
	Status     int // HTTP status: 400, 401, 403, 404, 405, 409, 410, 413, 415, 429, 500, 503
	Message    string
	Param      string        // the field at fault; "": no single field
	RetryAfter time.Duration // wait before another try, with 429 and 503; 0: not stated
}

// Error returns the status and the server's message.
func (e *Error) Error() string { return fmt.Sprintf("status %d: %s", e.Status, e.Message) }

// maxAnswer bounds an answer that is held in memory, and maxError an error's.
const maxAnswer, maxError = 256 << 20, 64 << 10

// send makes a request and returns the answer's body, which the caller closes.
func (c *Client) send(ctx context.Context, method, path, kind string, body io.Reader) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(c.URL, "/")+path, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", kind)
	}
	if c.Key != "" {
		r.Header.Set("Authorization", "Bearer "+c.Key)
	}
	h := c.HTTP
	if h == nil {
		h = http.DefaultClient
	}
	a, err := h.Do(r)
	if err != nil {
		return nil, err
	}
	if a.StatusCode/100 == 2 {
		return a.Body, nil
	}
	defer a.Body.Close()
	return nil, readError(a)
}

func readError(a *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(a.Body, maxError))
	if err != nil {
		return err
	}
	var answer struct {
		Error struct{ Message, Param string }
	}
	e := &Error{Status: a.StatusCode}
	if json.Unmarshal(text, &answer) == nil {
		e.Message, e.Param = answer.Error.Message, answer.Error.Param
	}
	if e.Message == "" {
		e.Message = http.StatusText(a.StatusCode)
	}
	if s, err := strconv.Atoi(a.Header.Get("Retry-After")); err == nil && s > 0 {
		e.RetryAfter = time.Duration(s) * time.Second
	}
	return e
}

// call sends in as JSON and reads the answer into out. Both may be nil.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	a, err := c.send(ctx, method, path, "application/json", body)
	if err != nil {
		return err
	}
	defer a.Close()
	return decode(a, path, out)
}

func decode(a io.Reader, path string, out any) error {
	if out == nil {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(a, maxAnswer+1))
	if err != nil {
		return err
	}
	if len(text) > maxAnswer {
		return fmt.Errorf("%s: an answer of more than %d bytes", path, maxAnswer)
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// checkText returns an error if a text of a field is not UTF-8, which JSON would replace by U+FFFD.
func checkText(field, text string) error {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && n == 1 {
			return fmt.Errorf("%s: byte %d, %#02x, is not UTF-8", field, i, text[i])
		}
		i += n
	}
	return nil
}

// checkTexts is checkText for each text of the field input.
func checkTexts(texts []string) error {
	for i, text := range texts {
		if err := checkText(fmt.Sprintf("input[%d]", i), text); err != nil {
			return err
		}
	}
	return nil
}

// A Model describes one model of the server.
type Model struct {
	ID      string `json:"id"`
	Details struct {
		Family      string   `json:"family"`
		HasSessions bool     `json:"has_sessions"`
		Embeds      bool     `json:"embeds"`
		Classes     []string `json:"classes"`
	} `json:"farfield"`
}

// Models returns the models of the server. It returns an *Error of the server, or an error of the
// transport.
func (c *Client) Models(ctx context.Context) ([]Model, error) {
	var answer struct{ Data []Model }
	err := c.call(ctx, "GET", "/v1/models", nil, &answer)
	return answer.Data, err
}

// embeddings is the answer of /v1/embeddings.
type embeddings struct {
	Data []struct {
		Index     int       `json:"index"`
		Embedding []float32 `json:"embedding"`
	} `json:"data"`
}

// Embed returns one vector for each text, in the order of texts: [texts][width]. It returns an
// error if the model makes no vectors, or a text is not UTF-8.
func (c *Client) Embed(ctx context.Context, texts ...string) ([][]float32, error) {
	if err := checkTexts(texts); err != nil {
		return nil, err
	}
	var answer embeddings
	in := map[string]any{"input": texts, "encoding_format": "float"}
	if err := c.call(ctx, "POST", "/v1/embeddings", in, &answer); err != nil {
		return nil, err
	}
	vectors := make([][]float32, len(texts))
	for _, d := range answer.Data {
		if d.Index < 0 || d.Index >= len(vectors) {
			return nil, fmt.Errorf("/v1/embeddings: index %d of %d texts", d.Index, len(texts))
		}
		vectors[d.Index] = d.Embedding
	}
	for i, v := range vectors {
		if v == nil {
			return nil, fmt.Errorf("/v1/embeddings: no vector of text %d", i)
		}
	}
	return vectors, nil
}

// A Class is the answer of a classifier to one text.
type Class struct {
	Index         int                `json:"index"`
	Name          string             `json:"class"`
	Probabilities map[string]float64 `json:"probabilities"`
	Tokens        int                `json:"tokens"`    // tokens of the text, before it was cut
	Truncated     bool               `json:"truncated"` // the model read only a part of the text
}

// Classify returns the class of each text, in the order of texts. It returns an error if the model
// is no classifier, or a text is not UTF-8.
func (c *Client) Classify(ctx context.Context, texts ...string) ([]Class, error) {
	if err := checkTexts(texts); err != nil {
		return nil, err
	}
	var answer struct{ Data []Class }
	if err := c.call(ctx, "POST", "/v1/classify", map[string]any{"input": texts}, &answer); err != nil {
		return nil, err
	}
	if len(answer.Data) != len(texts) {
		return nil, fmt.Errorf("/v1/classify: %d classes of %d texts", len(answer.Data), len(texts))
	}
	return answer.Data, nil
}

func sessionPath(id, rest string) string { return "/v1/sessions/" + url.PathEscape(id) + rest }
