// Package chat renders the chat templates of published models: a bounded subset of Jinja.
//
// Statements are for, if, set, with, filter, macro, call, break and continue; others are refused by
// name when a template is parsed. Expressions have attributes, subscripts, slices, the operators of Jinja, and
// the functions, filters, tests and methods of the tables in functions.go. Another function, filter,
// test or method is refused by name when a conversation reaches it. Rendering has a bound on work and one on memory,
// and both are spent before a value is made, so a template of a foreign folder cannot hold a server up. Integers have
// 64 bits; a result beyond them is an error. Blocks are trimmed as transformers does.
package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Limits of a template and its rendering.
const (
	maxTemplate = 1 << 20 // bytes of a template
	maxDepth    = 64      // of nested statements or expressions
	maxWork     = 1 << 27 // bytes that rendering reads and writes, with stepWork for a step
	stepWork    = 64
	maxMemory   = 1 << 26 // bytes of the values that rendering makes, also of those that it drops
)

// Bytes that values take beside their content, at least as many as the runtime gives them.
const (
	elementBytes = 48  // a string or a number in a list that grows
	entryBytes   = 160 // an entry of a mapping
	objectBytes  = 256 // a mapping, a namespace or a scope without entries
)

// reserveBytes is the step in which memory is reported to Options.Reserve.
const reserveBytes = 1 << 20

// Message is a message of a conversation.
type Message struct {
	Role    string
	Content string
	Name    string // "": none

	HasNoContent bool            // the content is none, as in messages that only call tools
	ToolCalls    json.RawMessage // an array of objects, whose arguments are objects; nil: none
	ToolCallID   string          // id of the call that a message with the role tool answers; "": none
}

// Options holds the values that a template reads besides messages.
type Options struct {
	SpecialTokens map[string]string // texts of special tokens by name, such as bos_token
	// NeedsAnswer adds the beginning of the assistant's answer.
	NeedsAnswer bool
	// Continues ends the text after the content of the last message, which the model is to
	// continue.
	Continues bool
	Tools     json.RawMessage // an array of objects; nil: none
	Date      time.Time       // date that strftime_now formats
	// Reserve is called before rendering takes more bytes of memory; nil: memory is not counted.
	// An error of Reserve ends rendering.
	Reserve func(bytes int) error
}

// Template is a parsed template. It is immutable, and its methods may be called concurrently.
type Template struct {
	source string
	body   []statement
}

// Mentions reports whether the source of the template contains a text, such as the name of a
// variable.
func (t *Template) Mentions(text string) bool { return strings.Contains(t.source, text) }

// RefusedError is returned if a template itself refuses the messages. Its message is the
// template's.
type RefusedError struct{ Message string }

// Error returns the message.
func (e *RefusedError) Error() string { return e.Message }

// Errors of a template that computes too long, or takes too much memory.
var (
	errWork   = fmt.Errorf("chat template: needs more than %d bytes of work", maxWork)
	errMemory = fmt.Errorf("chat template: needs more than %d bytes of memory", maxMemory)
)

// reserveError is the error of Options.Reserve.
type reserveError struct{ error }

// Unwrap returns the error.
func (e *reserveError) Unwrap() error { return e.error }

// isFinal reports whether an error is passed on as it is, without the names of constructs.
func isFinal(err error) bool {
	var refused *RefusedError
	var reserve *reserveError
	return errors.As(err, &refused) || errors.As(err, &reserve) || errors.Is(err, errWork) || errors.Is(err, errMemory)
}

// lineError is the error of a statement that begins on a line.
type lineError struct {
	line int
	err  error
}

// Error returns the line and the error.
func (e *lineError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) }

// Unwrap returns the error.
func (e *lineError) Unwrap() error { return e.err }

// Parse parses a template. It returns an error that names a construct outside the subset, and
// for a template that is too long or malformed.
func Parse(source string) (*Template, error) {
	if len(source) > maxTemplate {
		return nil, fmt.Errorf("chat template: has %d bytes, at most %d", len(source), maxTemplate)
	}
	pieces, err := splitTemplate(source)
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	p := &parser{pieces: pieces}
	body, end, err := p.parseBody()
	if err == nil && end != "" {
		err = fmt.Errorf("%s closes nothing", end)
	}
	if err != nil {
		return nil, fmt.Errorf("chat template: line %d: %w", p.line, err)
	}
	return &Template{source, body}, nil
}

// Render returns the text of messages. It returns a *RefusedError if the template refuses them, the
// error of Options.Reserve, and an error that names a construct and its line if the template reads
// a missing value, takes too many steps or too much memory.
func (t *Template) Render(messages []Message, o Options) (string, error) {
	return t.render(&renderer{date: o.Date, reserve: o.Reserve}, messages, o)
}

// render is Render with a renderer that may have spent some of its work and memory.
func (t *Template) render(r *renderer, messages []Message, o Options) (string, error) {
	if err := r.take(len(messages) * (objectBytes + 3*entryBytes)); err != nil {
		return "", err
	}
	list := make([]any, len(messages))
	for i, m := range messages {
		d := newDict()
		d.set("role", m.Role)
		d.set("content", m.Content)
		if m.Name != "" {
			d.set("name", m.Name)
		}
		if m.HasNoContent {
			d.set("content", nil)
		}
		if m.ToolCallID != "" {
			d.set("tool_call_id", m.ToolCallID)
		}
		if m.ToolCalls != nil {
			calls, err := r.parseJSON(m.ToolCalls)
			if err != nil {
				return "", fmt.Errorf("chat template: tool_calls of message %d: %w", i, err)
			}
			d.set("tool_calls", calls)
		}
		list[i] = d
	}
	global := map[string]any{"messages": list, "add_generation_prompt": o.NeedsAnswer, "tools": nil, "documents": nil}
	if o.Tools != nil {
		tools, err := r.parseJSON(o.Tools)
		if err != nil {
			return "", fmt.Errorf("chat template: tools: %w", err)
		}
		global["tools"] = tools
	}
	for name, text := range o.SpecialTokens {
		global[name] = text
	}
	r.scopes = []map[string]any{global}
	if o.Continues {
		if err := r.markLast(messages, list, t); err != nil {
			return "", err
		}
	}
	if err := r.run(t.body); err != nil {
		if !isFinal(err) {
			err = fmt.Errorf("chat template: %w", err)
		}
		return "", err
	}
	if o.Continues {
		return cutAtMark(r.out.String())
	}
	return r.out.String(), nil
}

// continueMark stands after the content of a message that is continued. It ends with a space, by
// which is seen whether the template trims the content.
const continueMark = "CONTINUE_FINAL_MESSAGE_TAG "

// markLast adds continueMark to the content of the last message. It returns an error if there is no
// content, or the template does not read it.
func (r *renderer) markLast(messages []Message, list []any, t *Template) error {
	if len(messages) == 0 {
		return errors.New("messages: there is none that could be continued")
	}
	last := messages[len(messages)-1]
	if last.HasNoContent || !t.Mentions("content") {
		return fmt.Errorf("messages[%d].content: there is none that could be continued, or the chat template reads none", len(messages)-1)
	}
	if err := r.take(len(last.Content) + len(continueMark)); err != nil {
		return err
	}
	d, _ := list[len(list)-1].(*dict)
	d.set("content", last.Content+continueMark)
	return nil
}

// cutAtMark returns the text before the last continueMark, without spaces at its end where the
// template trims the content. It returns an error if the template leaves the content out.
func cutAtMark(text string) (string, error) {
	at := strings.LastIndex(text, strings.TrimSpace(continueMark))
	switch {
	case at < 0:
		return "", errors.New("chat template: leaves out the content of the last message, which is to be continued")
	case strings.HasPrefix(text[at:], continueMark):
		return text[:at], nil
	}
	return strings.TrimRight(text[:at], spaces), nil
}
