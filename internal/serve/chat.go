package serve

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"

	"github.com/farfield-ml/farfield/internal/chat"
	"github.com/farfield-ml/farfield/internal/sessions"
)

// Chat holds what a conversation needs.
type Chat struct {
	Template      *chat.Template
	SpecialTokens map[string]string // texts by names such as bos_token
	// Refused is the error of the model's template; nil: there is a Template.
	Refused error
}

// chatRequest is the body of /v1/chat/completions.
type chatRequest struct {
	drawRequest
	Messages            []chatMessage `json:"messages"`
	MaxCompletionTokens *int          `json:"max_completion_tokens"`

	Audio          json.RawMessage `json:"audio"`
	Functions      json.RawMessage `json:"functions"`
	FunctionCall   json.RawMessage `json:"function_call"`
	Modalities     json.RawMessage `json:"modalities"`
	Prediction     json.RawMessage `json:"prediction"`
	ResponseFormat json.RawMessage `json:"response_format"`
	Tools          json.RawMessage `json:"tools"`
	ToolChoice     json.RawMessage `json:"tool_choice"`
	TopLogprobs    json.RawMessage `json:"top_logprobs"`
	WebSearch      json.RawMessage `json:"web_search_options"`

	ParallelToolCalls json.RawMessage `json:"parallel_tool_calls"`
	PromptCacheKey    json.RawMessage `json:"prompt_cache_key"`
	ReasoningEffort   json.RawMessage `json:"reasoning_effort"`
	SafetyIdentifier  json.RawMessage `json:"safety_identifier"`
	ServiceTier       json.RawMessage `json:"service_tier"`
	Store             json.RawMessage `json:"store"`
	Verbosity         json.RawMessage `json:"verbosity"`
}

// chatMessage is a message of a request.
type chatMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	Name    string          `json:"name"`
	Refusal json.RawMessage `json:"refusal"`
}

// maxMessages bounds the messages of a conversation.
const maxMessages = 4096

// chatTokens bounds an answer where a request does not.
const chatTokens = 4096

// message returns m for the template. It returns an error for content that is no text, and for a refusal.
func (m *chatMessage) message(i int, strict bool) (chat.Message, error) {
	c := chat.Message{Role: m.Role, Name: m.Name}
	if m.Role == "" {
		return c, badFieldf(fieldName("messages", i)+".role", "is missing")
	}
	if err := refuseField(fieldName("messages", i)+".refusal", m.Refusal); err != nil {
		return c, err
	}
	var text *string
	if json.Unmarshal(m.Content, &text) == nil && text != nil {
		c.Content = *text
		return c, nil
	}
	var parts []struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	field := fieldName("messages", i) + ".content"
	if json.Unmarshal(m.Content, &parts) != nil || len(parts) == 0 {
		return c, badFieldf(field, "is neither a string nor an array of parts")
	}
	var b strings.Builder
	for j, p := range parts {
		if p.Type != "text" || p.Text == nil {
			return c, badFieldf(fieldName(field, j), "is of type %.40q, needs text", p.Type)
		}
		b.WriteString(*p.Text)
	}
	c.Content = b.String()
	return c, checkFields(m.Content, reflect.TypeOf(parts), field, strict)
}

// checkOthers returns an error for a field that asks for more than there is.
func (q *chatRequest) checkOthers() error {
	for _, f := range []struct {
		name    string
		value   json.RawMessage
		neutral []string
	}{
		{"audio", q.Audio, nil}, {"functions", q.Functions, []string{"[]"}}, {"function_call", q.FunctionCall, []string{`"none"`}},
		{"modalities", q.Modalities, []string{`["text"]`}}, {"prediction", q.Prediction, nil}, {"tools", q.Tools, []string{"[]"}},
		{"response_format", q.ResponseFormat, []string{`{"type":"text"}`}},
		{"tool_choice", q.ToolChoice, []string{`"none"`, `"auto"`}}, {"top_logprobs", q.TopLogprobs, []string{"0"}}, {"web_search_options", q.WebSearch, nil},
	} {
		if err := refuseField(f.name, f.value, f.neutral...); err != nil {
			return err
		}
	}
	return nil
}

// renderChat returns the ids of a conversation. It returns an error for invalid messages, and
// if the template refuses them or ctx ends.
func (s completionAPI) renderChat(ctx context.Context, q *chatRequest) ([]int32, error) {
	if len(q.Messages) == 0 || len(q.Messages) > maxMessages {
		return nil, badFieldf("messages", "has %d messages, needs 1 to %d", len(q.Messages), maxMessages)
	}
	messages := make([]chat.Message, len(q.Messages))
	for i := range messages {
		var err error
		if messages[i], err = q.Messages[i].message(i, s.o.Strict); err != nil {
			return nil, err
		}
	}
	text, err := s.renderInTurn(ctx, messages)
	if err != nil {
		return nil, err
	}
	ids, err := s.encodeText(ctx, text, false)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, badFieldf("messages", "%v", err)
	}
	if len(ids) == 0 {
		return nil, badFieldf("messages", "have no tokens")
	}
	return ids, nil
}

// maxRefusal bounds the words of a template that refuses messages, in bytes.
const maxRefusal = 1000

// renderInTurn returns the text of messages. Few conversations are rendered at a time, and their memory counts
// beside the states. It returns an error if the template refuses the messages, there is no room, or ctx ends.
func (s completionAPI) renderInTurn(ctx context.Context, messages []chat.Message) (string, error) {
	select {
	case s.renders <- struct{}{}:
		defer func() { <-s.renders }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	var reserved int64
	defer func() { s.o.Sessions.Release(reserved) }()
	reserve := func(n int) error {
		err := s.o.Sessions.Reserve(int64(n))
		if err == nil {
			reserved += int64(n)
		}
		return err
	}
	text, err := s.o.Chat.Template.Render(messages, chat.Options{SpecialTokens: s.o.Chat.SpecialTokens, NeedsAnswer: true, Date: s.o.Clock(), Reserve: reserve})
	var refused *chat.RefusedError
	switch {
	case errors.As(err, &refused):
		return "", badFieldf("messages", "%.*s", maxRefusal, refused.Message)
	case errors.Is(err, sessions.ErrFull):
		return "", err
	case err != nil:
		return "", badFieldf("messages", "%v", err)
	}
	return text, nil
}

// chatAnswer is the answer of /v1/chat/completions, or an event of its stream.
type chatAnswer struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"`
	Model   string       `json:"model"`
	Choices []chatChoice `json:"choices"`
	Usage   *usage       `json:"usage,omitempty"`
}

type chatChoice struct {
	Index    int                `json:"index"`
	Message  *chatAnswerMessage `json:"message,omitempty"`
	Delta    *chatDelta         `json:"delta,omitempty"`
	Logprobs *string            `json:"logprobs"` // always null
	Reason   *string            `json:"finish_reason"`
}

type chatAnswerMessage struct {
	Role    string  `json:"role"`
	Content string  `json:"content"`
	Refusal *string `json:"refusal"` // always null
}

type chatDelta struct {
	Role    string `json:"role,omitempty"`
	Content string `json:"content,omitempty"`
}

// completeChat answers /v1/chat/completions.
func (s completionAPI) completeChat(w http.ResponseWriter, r *http.Request) error {
	if s.o.Chat == nil {
		return s.refuseModel("has no chat template")
	}
	if err := s.o.Chat.Refused; err != nil {
		return s.refuseModel("has a template that is refused: " + err.Error())
	}
	var q chatRequest
	if err := s.readJSON(w, r, &q); err != nil {
		return err
	}
	d, stops, err := q.check(s.Server)
	if err != nil {
		return err
	}
	if err := q.checkOthers(); err != nil {
		return err
	}
	ids, err := s.renderChat(r.Context(), &q)
	if err != nil {
		return err
	}
	limit := chatTokens
	if s.o.Card.TrainedContext > 0 {
		limit = min(limit, max(s.o.Card.TrainedContext-len(ids), defaultTokens))
	}
	if s.o.Card.Context > 0 {
		limit = max(0, min(limit, s.o.Card.Context-len(ids)))
	}
	if s.o.MaxSession > 0 {
		limit = max(0, min(limit, int(s.o.MaxSession)-len(ids)))
	}
	field := "max_tokens"
	if q.MaxCompletionTokens != nil {
		if q.MaxTokens != nil {
			return badFieldf(field, "is given beside max_completion_tokens; one is needed")
		}
		field, q.MaxTokens = "max_completion_tokens", q.MaxCompletionTokens
	}
	if d.MaxTokens, err = s.checkMaxTokens(field, q.MaxTokens, limit); err != nil {
		return err
	}
	answer := chatAnswer{ID: newID("chatcmpl-"), Object: "chat.completion", Created: s.o.Clock().Unix(), Model: s.o.Name}
	if !q.Stream {
		c, err := s.continueText(r.Context(), ids, d, stops, nil)
		if err != nil {
			return err
		}
		answer.Choices = []chatChoice{{Message: &chatAnswerMessage{Role: "assistant", Content: c.text}, Reason: &c.reason}}
		answer.Usage = newUsage(int64(len(ids)), int64(len(c.result.IDs)), c.result.Reused)
		answer.Usage.Beyond = s.o.Card.beyondContext(answer.Usage.Total)
		return writeJSON(w, http.StatusOK, answer)
	}
	answer.Object = "chat.completion.chunk"
	return s.sendStream(w, func(e *events) error {
		delta := chatDelta{Role: "assistant"} // of the first event
		c, err := s.continueText(r.Context(), ids, d, stops, func(text string) error {
			delta.Content = text
			answer.Choices = []chatChoice{{Delta: &delta}}
			err := e.send(answer)
			delta.Role = ""
			return err
		})
		if err != nil {
			return err
		}
		delta.Content = ""
		answer.Choices = []chatChoice{{Delta: &delta, Reason: &c.reason}}
		if err := e.send(answer); err != nil || q.StreamOptions == nil || !q.StreamOptions.IncludeUsage {
			return err
		}
		answer.Choices = []chatChoice{}
		answer.Usage = newUsage(int64(len(ids)), int64(len(c.result.IDs)), c.result.Reused)
		answer.Usage.Beyond = s.o.Card.beyondContext(answer.Usage.Total)
		return e.send(answer)
	})
}
