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

// A Session is a text that the model has read, by its id.
type Session struct {
	ID     string `json:"id"`
	Tokens int64  `json:"tokens"`
	Bytes  int64  `json:"bytes"` // of the state; 0 in an answer that does not have it
	Model  string `json:"model,omitempty"`
}

// An Input is text or its ids, not both. Without ids the text may be empty.
type Input struct {
	Text string
	IDs  []int32
}

// MarshalJSON returns the field that is set, and the empty text where none is. It returns an
// error if the text is not UTF-8.
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

// Create makes a session that has read in. Special tokens that the model begins a
// text with are added here alone. Errors are the server's or the transport's. After an
// error of the transport the session may be stored: List has it.
func (c *Client) Create(ctx context.Context, in Input) (Session, error) {
	var s Session
	err := c.call(ctx, "POST", "/v1/sessions", in, &s)
	return s, err
}

// Append lets a session read more, and returns its number of tokens. Text goes on behind the
// text of the session, without a space that the tokenizer puts before a text. It fails with
// status 409 while another request writes to the session. After an error of the transport
// the tokens may be stored: Get says how many the session has.
func (c *Client) Append(ctx context.Context, id string, in Input) (int64, error) {
	var s Session
	err := c.call(ctx, "POST", sessionPath(id, "/append"), in, &s)
	return s.Tokens, err
}

// A Draw says how the model goes on. Temperature 0 takes the likeliest token. The
// same session, seed and fields give the same text.
type Draw struct {
	MaxTokens   int     `json:"max_tokens"`
	Temperature float64 `json:"temperature"`
	Seed        uint64  `json:"seed"`

	Stop []string `json:"stop,omitempty"` // texts before the first of which the text ends
}

// A Token is one new token of a session as it is drawn.
type Token struct {
	ID   int32  `json:"id"`
	Text string `json:"text"` // may be empty where a character has several tokens
}

// A Generation is the text that a session was continued by, and then holds.
type Generation struct {
	IDs    []int32 `json:"ids"`
	Text   string  `json:"text"`
	Tokens int64   `json:"tokens"` // of the session
}

// Generate continues a session. emit, if not nil, gets every token as it is drawn; its
// error ends the request. Generate fails where a stream ends before its last event. After
// this error, an error of emit or an error of the transport the tokens may be stored: Get
// says how many the session has.
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

// Fork makes a session of the same state. Each goes its own way from there. Errors
// are the server's or the transport's.
func (c *Client) Fork(ctx context.Context, id string) (Session, error) {
	var s Session
	err := c.call(ctx, "POST", sessionPath(id, "/fork"), nil, &s)
	return s, err
}

// Get returns a session. It fails with status 404 where none has the id, and 410 where its
// state is lost.
func (c *Client) Get(ctx context.Context, id string) (Session, error) {
	var s Session
	err := c.call(ctx, "GET", sessionPath(id, ""), nil, &s)
	return s, err
}

// List returns all sessions of the server. Errors are the server's or the transport's.
func (c *Client) List(ctx context.Context) ([]Session, error) {
	var answer struct{ Data []Session }
	err := c.call(ctx, "GET", "/v1/sessions", nil, &answer)
	return answer.Data, err
}

// Delete removes a session, also one of status 410, whose state is lost. It fails with status
// 404 where none has the id, and 409 while another request uses the session: one whose context
// has ended does so until its step ends.
func (c *Client) Delete(ctx context.Context, id string) error {
	return c.call(ctx, "DELETE", sessionPath(id, ""), nil, nil)
}

// Export writes a snapshot of a session to w. It fails where w does, or with status
// 404.
func (c *Client) Export(ctx context.Context, id string, w io.Writer) error {
	a, err := c.send(ctx, "GET", sessionPath(id, "/export"), "", nil)
	if err != nil {
		return err
	}
	defer a.Close()
	_, err = io.Copy(w, a)
	return err
}

// Import makes a session of a snapshot. It fails with status 409 where the snapshot
// is of another model, tokenizer or precision. It leaves snapshot open. Where it fails, a
// read of snapshot may end after it.
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

// A Text is what a session has read and drawn.
type Text struct {
	Text    string  `json:"text"`
	IDs     []int32 `json:"ids"`
	Unknown int64   `json:"unknown_tokens"` // before IDs, of an imported snapshot
}

// Text returns the text of a session and its tokens.
func (c *Client) Text(ctx context.Context, id string) (Text, error) {
	var t Text
	err := c.call(ctx, "GET", sessionPath(id, "?text"), nil, &t)
	return t, err
}

// Rewind leaves the first tokens of a session, and forgets the others. It fails where there are fewer, or where they
// came with an imported snapshot.
func (c *Client) Rewind(ctx context.Context, id string, tokens int64) (Session, error) {
	var s Session
	err := c.call(ctx, "POST", sessionPath(id, "/rewind"), map[string]int64{"tokens": tokens}, &s)
	return s, err
}
