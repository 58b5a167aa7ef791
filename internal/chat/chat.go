// Package chat renders the chat templates of published models: a bounded subset of Jinja.
//
// Statements are for, if, set, macro, break and continue; others are refused by name when a
// template is parsed. Expressions have attributes, subscripts, slices, the operators of Jinja, and
// the functions, filters, tests and methods of the tables in functions.go. Another function, filter,
// test or method is refused by name when a conversation reaches it. Rendering has a bound on steps and on bytes, so a
// template of a foreign folder cannot hold a server up. Blocks are trimmed as transformers does.
package chat

import (
	"errors"
	"fmt"
	"time"
)

// Limits of a template and its rendering.
const (
	maxTemplate = 1 << 20 // bytes of a template
	maxDepth    = 64      // of nested statements or expressions
	maxWork     = 1 << 27 // bytes that rendering reads and writes, with stepWork for a step
	stepWork    = 64
)

// Message is a message of a conversation.
type Message struct {
	Role    string
	Content string
	Name    string // "": none
}

// Options are the values that a template reads besides messages.
type Options struct {
	SpecialTokens map[string]string // texts by names such as bos_token
	// NeedsAnswer adds the beginning of the assistant's answer.
	NeedsAnswer bool
	Date        time.Time // for strftime_now
}

// Template is a parsed template. It is immutable, and its methods may be called concurrently.
type Template struct {
	body []statement
}

// RefusedError is the error by which a template refuses messages, in its own words.
type RefusedError struct{ Message string }

// Error returns the message.
func (e *RefusedError) Error() string { return e.Message }

// errWork is the error of a template that computes too long.
var errWork = fmt.Errorf("chat template: needs more than %d bytes of work", maxWork)

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
	return &Template{body}, nil
}

// Render returns the text of messages. It returns a *RefusedError if the template refuses
// them, and an error if the template needs a value that is missing, or works too long.
func (t *Template) Render(messages []Message, o Options) (string, error) {
	list := make([]any, len(messages))
	for i, m := range messages {
		d := newDict()
		d.set("role", m.Role)
		d.set("content", m.Content)
		if m.Name != "" {
			d.set("name", m.Name)
		}
		list[i] = d
	}
	global := map[string]any{"messages": list, "add_generation_prompt": o.NeedsAnswer, "tools": nil, "documents": nil}
	for name, text := range o.SpecialTokens {
		global[name] = text
	}
	r := &renderer{scopes: []map[string]any{global}, date: o.Date}
	err := r.run(t.body)
	var refused *RefusedError
	if err != nil && !errors.As(err, &refused) && !errors.Is(err, errWork) {
		err = fmt.Errorf("chat template: %w", err)
	}
	if err != nil {
		return "", err
	}
	return r.out.String(), nil
}
