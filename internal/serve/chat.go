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

// Chat holds what the chat endpoints need.
type Chat struct {
	Template      *chat.Template
	SpecialTokens map[string]string // texts of special tokens by name, such as bos_token
	// Refused is the error of the model's template; nil: Template is set.
	Refused error
}

// chatRequest is the body of /v1/chat/completions.
type chatRequest struct {
	drawRequest
	Messages            []chatMessage `json:"messages"`
	MaxCompletionTokens *int          `json:"max_completion_tokens"`

	Audio        json.RawMessage `json:"audio"`
	Functions    json.RawMessage `json:"functions"`
	FunctionCall json.RawMessage `json:"function_call"`
	Modalities   json.RawMessage `json:"modalities"`
	Prediction   json.RawMessage `json:"prediction"`
	Tools        []tool          `json:"tools" doc:"Functions that the model may call, if its template has a place for them."`
	ToolChoice   json.RawMessage `json:"tool_choice" doc:"none, auto, required, or a function by its name (auto)."`
	TopLogprobs  *whole          `json:"top_logprobs" doc:"Likely tokens at each place beside logprobs, 0 to 20 (0)."`
	WebSearch    json.RawMessage `json:"web_search_options"`

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
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	Name       string          `json:"name"`
	Refusal    json.RawMessage `json:"refusal"`
	ToolCalls  json.RawMessage `json:"tool_calls"`
	ToolCallID string          `json:"tool_call_id"`
}

// maxMessages bounds the messages of a conversation.
const maxMessages = 4096

// chatTokens bounds an answer where a request does not.
const chatTokens = 4096

// message returns m for the template. It returns an error for content that is no text, and for a refusal.
func (m *chatMessage) message(i int, strict bool) (chat.Message, error) {
	c := chat.Message{Role: m.Role, Name: m.Name, ToolCallID: m.ToolCallID}
	if m.Role == "" {
		return c, badFieldf(fieldName("messages", i)+".role", "is missing")
	}
	if err := refuseField(fieldName("messages", i)+".refusal", m.Refusal); err != nil {
		return c, err
	}
	if calls := compact(m.ToolCalls); calls == "[]" && strict {
		return c, badFieldf(fieldName("messages", i)+".tool_calls", "has no calls")
	} else if calls != "" && calls != "null" && calls != "[]" {
		var err error
		if c.ToolCalls, err = objectArguments(fieldName("messages", i)+".tool_calls", m.ToolCalls); err != nil {
			return c, err
		}
		if content := compact(m.Content); content == "" || content == "null" {
			c.HasNoContent = true
			return c, nil
		}
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
		{"modalities", q.Modalities, []string{`["text"]`}}, {"prediction", q.Prediction, nil}, {"web_search_options", q.WebSearch, nil},
	} {
		if err := refuseField(f.name, f.value, f.neutral...); err != nil {
			return err
		}
	}
	return nil
}

// renderChat returns the ids of a conversation. It returns an error for invalid messages, and
// if the template refuses them or ctx ends.
func (s completionAPI) renderChat(ctx context.Context, q *chatRequest, tools *toolset) ([]int32, error) {
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
	text, err := s.renderInTurn(ctx, messages, tools)
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
func (s completionAPI) renderInTurn(ctx context.Context, messages []chat.Message, tools *toolset) (string, error) {
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
	text, err := s.o.Chat.Template.Render(messages, chat.Options{SpecialTokens: s.o.Chat.SpecialTokens, NeedsAnswer: true, Tools: tools.list, Date: s.o.Clock(), Reserve: reserve})
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
	Logprobs *chatLogprobs      `json:"logprobs"`
	Reason   *string            `json:"finish_reason"`
}

type chatAnswerMessage struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content"`
	Refusal   *string    `json:"refusal"` // always null
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
}

type chatDelta struct {
	Role      string     `json:"role,omitempty"`
	Content   string     `json:"content,omitempty"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
}

// chatLogprobs are the log-probabilities of the tokens of an answer.
type chatLogprobs struct {
	Content []chatTokenLog  `json:"content"`
	Refusal json.RawMessage `json:"refusal"` // always null
}

type chatTokenLog struct {
	Token string          `json:"token"`
	Log   float64         `json:"logprob"`
	Bytes []int           `json:"bytes"`
	Top   *[]chatTokenLog `json:"top_logprobs,omitempty"` // nil: of one of the likely tokens
}

// describeChatProbs returns the JSON of probabilities; nil: there are none.
func (s completionAPI) describeChatProbs(probs []tokenProb, top int) (*chatLogprobs, error) {
	if top < 0 {
		return nil, nil
	}
	one := func(id int32, log float64) (chatTokenLog, error) {
		text, b, err := s.tokenText(id)
		x := chatTokenLog{Token: text, Log: finite(log), Bytes: []int{}}
		for _, c := range b {
			x.Bytes = append(x.Bytes, int(c))
		}
		return x, err
	}
	l := &chatLogprobs{Content: []chatTokenLog{}}
	for _, p := range probs {
		x, err := one(p.id, p.log)
		if err != nil {
			return nil, err
		}
		list := []chatTokenLog{}
		for _, likely := range p.top {
			y, err := one(likely.id, likely.log)
			if err != nil {
				return nil, err
			}
			list = append(list, y)
		}
		x.Top = &list
		l.Content = append(l.Content, x)
	}
	return l, nil
}

// check returns what a request draws. It returns an error for an invalid field, and for one that asks for more than
// there is.
func (q *chatRequest) check(s *Server, tools *toolset) (*drawing, error) {
	d, err := q.drawRequest.check(s)
	if err != nil {
		return nil, err
	}
	if err := q.checkOthers(); err != nil {
		return nil, err
	}
	switch text := compact(q.Logprobs); text {
	case "", "null", "false":
		if q.TopLogprobs != nil && *q.TopLogprobs != 0 {
			return nil, badFieldf("top_logprobs", "is %d without logprobs", *q.TopLogprobs)
		}
	case "true":
		if d.top = 0; q.TopLogprobs != nil {
			d.top = int(*q.TopLogprobs)
		}
		if d.top < 0 || d.top > maxTopTokens {
			return nil, badFieldf("top_logprobs", "%d is not between 0 and %d", d.top, maxTopTokens)
		}
	default:
		return nil, badFieldf("logprobs", "is %.40s, needs true or false", text)
	}
	call, err := tools.grammar(s.o.Chat, q)
	if err != nil {
		return nil, err
	}
	if call != nil && d.grammar != nil {
		return nil, badFieldf("response_format", "is given beside tool_choice, which asks for a call")
	}
	if call != nil {
		d.grammar = call
	}
	return d, nil
}

// limitChat returns the tokens to draw after n tokens. It returns an error if they are negative or too many.
func (s completionAPI) limitChat(q *chatRequest, n int) (int, error) {
	limit := chatTokens
	if s.o.Card.TrainedContext > 0 {
		limit = min(limit, max(s.o.Card.TrainedContext-n, defaultTokens))
	}
	if s.o.Card.Context > 0 {
		limit = max(0, min(limit, s.o.Card.Context-n))
	}
	if s.o.MaxSession > 0 {
		limit = max(0, min(limit, int(s.o.MaxSession)-n))
	}
	field := "max_tokens"
	if q.MaxCompletionTokens != nil {
		if q.MaxTokens != nil && *q.MaxTokens != *q.MaxCompletionTokens {
			return 0, badFieldf(field, "is %d, max_completion_tokens is %d; one is needed", *q.MaxTokens, *q.MaxCompletionTokens)
		}
		field, q.MaxTokens = "max_completion_tokens", q.MaxCompletionTokens
	}
	most, err := s.checkMaxTokens(field, q.MaxTokens, limit)
	if err != nil {
		return 0, err
	}
	return s.fitContext("messages", n, most, q.MaxTokens != nil)
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
	tools, err := q.readTools(s.o.Chat)
	if err != nil {
		return err
	}
	d, err := q.check(s.Server, tools)
	if err != nil {
		return err
	}
	ids, err := s.renderChat(r.Context(), &q, tools)
	if err != nil {
		return err
	}
	if d.MaxTokens, err = s.limitChat(&q, len(ids)); err != nil {
		return err
	}
	answer := chatAnswer{ID: newID("chatcmpl-"), Object: "chat.completion", Created: s.o.Clock().Unix(), Model: s.o.Name}
	if q.Stream {
		answer.Object = "chat.completion.chunk"
		return s.streamChat(w, r, &q, answer, ids, tools, d)
	}
	prompts := [][]int32{ids}
	list, err := s.drawAll(r.Context(), prompts, q.choices(), q.Seed != nil, d, nil)
	if err != nil {
		return err
	}
	for i, c := range list {
		message := &chatAnswerMessage{Role: "assistant", Content: &c.text}
		if before, calls := tools.parse(c.text); calls != nil {
			message.ToolCalls, c.reason = calls, reasonCalls
			if message.Content = &before; before == "" {
				message.Content = nil
			}
		}
		choice := chatChoice{Index: i, Message: message, Reason: &c.reason}
		if choice.Logprobs, err = s.describeChatProbs(c.probs, d.top); err != nil {
			return err
		}
		answer.Choices = append(answer.Choices, choice)
	}
	answer.Usage = s.countAll(prompts, len(list), list)
	if d.top < 0 {
		return writeJSON(w, http.StatusOK, answer)
	}
	return s.writeLargeJSON(w, answer)
}

// reasonCalls is the reason of an answer that calls tools.
const reasonCalls = "tool_calls"

// streamChat sends the parts of answers.
func (s completionAPI) streamChat(w http.ResponseWriter, r *http.Request, q *chatRequest, answer chatAnswer, ids []int32, tools *toolset, d *drawing) error {
	n := q.choices()
	held := make([]heldText, n)
	isBegun := make([]bool, n)
	probs := make([][]tokenProb, n) // of text that is held
	return s.sendStream(w, func(e *events) error {
		send := func(i int, delta chatDelta, told []tokenProb, reason *string) error {
			if !isBegun[i] {
				isBegun[i], delta.Role = true, "assistant"
			}
			choice := chatChoice{Index: i, Delta: &delta, Reason: reason}
			if d.top >= 0 {
				var err error
				if choice.Logprobs, err = s.describeChatProbs(told, d.top); err != nil {
					return err
				}
			}
			answer.Choices = []chatChoice{choice}
			return e.send(answer)
		}
		for i := range held {
			held[i].tools = tools
		}
		list, err := s.drawAll(r.Context(), [][]int32{ids}, n, q.Seed != nil, d, func(i int, text string, told []tokenProb) error {
			probs[i] = append(probs[i], told...)
			if text = held[i].add(text); text == "" {
				return nil
			}
			told, probs[i] = probs[i], nil
			return send(i, chatDelta{Content: text}, told, nil)
		})
		if err != nil {
			return err
		}
		for i, c := range list {
			last := chatDelta{Content: held[i].text}
			told := append(probs[i], c.probs...)
			if before, calls := tools.parse(held[i].text); calls != nil {
				for j := range calls {
					calls[j].Index = &j
				}
				last, c.reason = chatDelta{Content: before, ToolCalls: calls}, reasonCalls
			}
			if last.Content != "" || last.ToolCalls != nil {
				if err := send(i, last, told, nil); err != nil {
					return err
				}
				told = nil
			}
			if err := send(i, chatDelta{}, told, &c.reason); err != nil {
				return err
			}
		}
		if q.StreamOptions == nil || !q.StreamOptions.IncludeUsage {
			return nil
		}
		answer.Choices, answer.Usage = []chatChoice{}, s.countAll([][]int32{ids}, n, list)
		return e.send(answer)
	})
}
