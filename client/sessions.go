package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// A Session describes a session of the server: its id, and how much its text holds.
type Session struct {
	ID     string `json:"id"`
	Tokens int64  `json:"tokens"`
	Bytes  int64  `json:"bytes"` // size of the state; 0: the answer did not state it
	Model  string `json:"model,omitempty"`
}

// An Input is a text or the ids of its tokens, not both. Without ids, the text may be empty.
type Input struct {
	Text string
	IDs  []int32
}

// MarshalJSON returns an object with the field that is set, or with an empty text if none is. It
// returns an error if the text is not UTF-8.
func (in Input) MarshalJSON() ([]byte, error) {
	if err := checkText("text", in.Text); err != nil {
		return nil, err
	}
	fields := map[string]any{}
	if in.IDs != nil {
		fields["ids"] = in.IDs
	}
	if in.Text != "" || in.IDs == nil {
		fields["text"] = in.Text
	}
	return json.Marshal(fields)
}

// Create makes a session and lets the model read in. Only Create adds special tokens that begin a
// text. It returns an *Error of the server or an error of the transport. After an error of the
// transport the session may exist: List shows it.
func (c *Client) Create(ctx context.Context, in Input) (Session, error) {
	var s Session
	err := c.call(ctx, "POST", "/v1/sessions", in, &s)
	return s, err
}

// Append adds in to the session's text, and returns the session's number of tokens. Special tokens,
// and a space that the tokenizer puts before a text, are not added. Append returns an *Error of
// status 409 while another request changes the session. After an error of the transport the tokens
// may have been added: Get returns the number of tokens.
func (c *Client) Append(ctx context.Context, id string, in Input) (int64, error) {
	var s Session
	err := c.call(ctx, "POST", sessionPath(id, "/append"), in, &s)
	return s.Tokens, err
}

// A Draw says how the model continues a text. With Temperature 0 it takes the most likely token.
// Equal sessions, seeds and fields give equal texts.
type Draw struct {
	MaxTokens   int     `json:"max_tokens"`
	Temperature float64 `json:"temperature"`
	Seed        uint64  `json:"seed"`

	Stop []string `json:"stop,omitempty"` // the text ends before the first of these
}

// A Token is a token that the model has just drawn.
type Token struct {
	ID   int32  `json:"id"`
	Text string `json:"text"` // may be empty if a character has several tokens
}

// A Generation is the continuation of a session's text. The session holds it afterwards.
type Generation struct {
	IDs    []int32 `json:"ids"`
	Text   string  `json:"text"`
	Tokens int64   `json:"tokens"` // tokens of the session, with the new ones
}

// Generate continues the text of a session as d says. It calls emit, unless nil, with each token as
// it is drawn; an error of emit ends the request. Generate returns an error if a stream ends before
// its last event. After this error, an error of emit or an error of the transport, the tokens may
// have been added: Get returns the number of tokens.
func (c *Client) Generate(ctx context.Context, id string, d Draw, emit func(Token) error) (Generation, error) {
	var g Generation
	if emit == nil {
		err := c.call(ctx, "POST", sessionPath(id, "/generate"), d, &g)
		return g, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, err := json.Marshal(struct {
		Draw
		Stream bool `json:"stream"`
	}{d, true})
	if err != nil {
		return g, err
	}
	a, err := c.send(ctx, "POST", sessionPath(id, "/generate"), "application/json", strings.NewReader(string(in)))
	if err != nil {
		return g, err
	}
	defer a.Close()
	return readStream(a, emit)
}

// readStream reads events up to the last one. The final object is the event that has ids.
func readStream(r io.Reader, emit func(Token) error) (Generation, error) {
	var g Generation
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	complete := false
	for lines.Scan() {
		data, isData := strings.CutPrefix(lines.Text(), "data:")
		if !isData {
			continue
		}
		data = strings.TrimSpace(data)
		if data == "[DONE]" {
			if !complete {
				return g, errors.New("stream: [DONE] without a final object")
			}
			return g, nil
		}
		var event struct {
			Token
			IDs    []int32
			Tokens int64
			Error  *struct{ Message, Param, Code string }
		}
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			return g, fmt.Errorf("stream: %w", err)
		}
		switch {
		case event.Error != nil:
			e := &Error{Status: 500, Message: event.Error.Message, Param: event.Error.Param}
			switch event.Error.Code {
			case "stopping":
				e.Status, e.RetryAfter = 503, time.Second
			case "session_damaged":
				e.Status = 410
			case "full":
				e.Status, e.RetryAfter = 429, time.Second
			}
			return g, e
		case event.IDs != nil:
			g, complete = Generation{event.IDs, event.Text, event.Tokens}, true
		default:
			if err := emit(event.Token); err != nil {
				return g, err
			}
		}
	}
	if err := lines.Err(); err != nil {
		return g, fmt.Errorf("stream: %w", err)
	}
	return g, fmt.Errorf("stream: %w before its last event", io.ErrUnexpectedEOF)
}

// Fork copies a session with its state. The copies are independent. Fork returns an *Error of the
// server or an error of the transport.
func (c *Client) Fork(ctx context.Context, id string) (Session, error) {
	var s Session
	err := c.call(ctx, "POST", sessionPath(id, "/fork"), nil, &s)
	return s, err
}

// Get returns a session. It returns an *Error of status 404 if there is none with this id, and of
// status 410 if its state is damaged.
func (c *Client) Get(ctx context.Context, id string) (Session, error) {
	var s Session
	err := c.call(ctx, "GET", sessionPath(id, ""), nil, &s)
	return s, err
}

// List returns all sessions that the key may see. It returns an *Error of the server or an error of
// the transport.
func (c *Client) List(ctx context.Context) ([]Session, error) {
	var answer struct{ Data []Session }
	err := c.call(ctx, "GET", "/v1/sessions", nil, &answer)
	return answer.Data, err
}

// Delete removes a session, also a damaged one (status 410). It returns an *Error of status 404 if
// there is none with this id, and of status 409 while another request uses it. A request whose
// context has ended still uses the session until its step ends.
func (c *Client) Delete(ctx context.Context, id string) error {
	return c.call(ctx, "DELETE", sessionPath(id, ""), nil, nil)
}

// Export writes a snapshot of a session to w. It returns the error of w, or an *Error of status 404
// if there is no session with this id.
func (c *Client) Export(ctx context.Context, id string, w io.Writer) error {
	a, err := c.send(ctx, "GET", sessionPath(id, "/export"), "", nil)
	if err != nil {
		return err
	}
	defer a.Close()
	_, err = io.Copy(w, a)
	return err
}

// Import makes a session from a snapshot that Export wrote. It returns an *Error of status 409 if
// the snapshot belongs to another model, tokenizer or precision. It does not close snapshot. If it
// returns an error, a read of snapshot may still be running.
func (c *Client) Import(ctx context.Context, snapshot io.Reader) (Session, error) {
	var s Session
	switch snapshot.(type) {
	case nil, *bytes.Buffer, *bytes.Reader, *strings.Reader: // the request has their length
	default:
		snapshot = io.NopCloser(snapshot)
	}
	a, err := c.send(ctx, "POST", "/v1/sessions/import", "application/octet-stream", snapshot)
	if err != nil {
		return s, err
	}
	defer a.Close()
	return s, decode(a, "/v1/sessions/import", &s)
}

// A Text is the text of a session and its tokens.
type Text struct {
	Text    string  `json:"text"`
	IDs     []int32 `json:"ids"`
	Unknown int64   `json:"unknown_tokens"` // number of tokens before IDs that are not known, in a session from an imported snapshot
}

// Text returns the text of a session and its tokens.
func (c *Client) Text(ctx context.Context, id string) (Text, error) {
	var t Text
	err := c.call(ctx, "GET", sessionPath(id, "?text"), nil, &t)
	return t, err
}

// Rewind shortens a session to its first tokens, and forgets the others. It returns an error if
// there are fewer tokens, or if they came with an imported snapshot.
func (c *Client) Rewind(ctx context.Context, id string, tokens int64) (Session, error) {
	var s Session
	err := c.call(ctx, "POST", sessionPath(id, "/rewind"), map[string]int64{"tokens": tokens}, &s)
	return s, err
}
