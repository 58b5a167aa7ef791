package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/grammar"
)

// tool is a function that the model may call.
type tool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
		Strict      *bool           `json:"strict"`
	} `json:"function"`
}

// toolCall is a call of a function.
type toolCall struct {
	Index    *int         `json:"index,omitempty"` // in a stream
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function calledByName `json:"function"`
}

type calledByName struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // the JSON of an object
}

// Limits of tools.
const (
	maxTools    = 128
	maxToolName = 64
)

// toolset is the tools of a request.
type toolset struct {
	list   json.RawMessage // as the template reads them; nil: none
	names  []string
	forced []tool // one of these is called; nil: the model decides
	choice string // name of the only one; "": any
}

// isEmpty reports whether no tool may be called.
func (t *toolset) isEmpty() bool { return len(t.names) == 0 }

// readTools returns the tools of a request. It returns an error if one is invalid, the choice names none of them, or
// the template has no place for them.
func (q *chatRequest) readTools(c *Chat) (*toolset, error) {
	t := &toolset{}
	choice := compact(q.ToolChoice)
	var named struct {
		Type     string `json:"type"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	switch choice {
	case "", "null", `"auto"`, `"none"`, `"required"`, `"any"`:
	default:
		if json.Unmarshal(q.ToolChoice, &named) != nil || named.Type != "function" || named.Function.Name == "" {
			return nil, badFieldf("tool_choice", "is %.80s, needs none, auto, required, or a function by its name", choice)
		}
		t.choice = named.Function.Name
	}
	if choice == `"none"` || len(q.Tools) == 0 {
		if len(q.Tools) == 0 && choice != "" && choice != "null" && choice != `"none"` && choice != `"auto"` {
			return nil, badFieldf("tool_choice", "is %.80s without tools", choice)
		}
		return t, nil
	}
	if len(q.Tools) > maxTools {
		return nil, badFieldf("tools", "has %d tools, at most %d", len(q.Tools), maxTools)
	}
	for i, x := range q.Tools {
		field := fieldName("tools", i)
		name := x.Function.Name
		switch {
		case x.Type != "function":
			return nil, badFieldf(field+".type", "is %.40q, needs function", x.Type)
		case name == "" || len(name) > maxToolName || strings.ContainsFunc(name, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '.')
		}):
			return nil, badFieldf(field+".function.name", "is %.80q, needs 1 to %d letters, digits, _, - and .", name, maxToolName)
		case slices.Contains(t.names, name):
			return nil, badFieldf(field+".function.name", "%q is named twice", name)
		}
		t.names = append(t.names, name)
	}
	if !c.Template.Mentions("tools") {
		e := badFieldf("tools", "the chat template of this model has no place for tools")
		e.Code = "unsupported"
		return nil, e
	}
	if t.choice != "" && !slices.Contains(t.names, t.choice) {
		return nil, badFieldf("tool_choice", "%.80q is none of the tools", t.choice)
	}
	if t.choice != "" || choice == `"required"` || choice == `"any"` {
		for _, x := range q.Tools {
			if t.choice == "" || x.Function.Name == t.choice {
				t.forced = append(t.forced, x)
			}
		}
	}
	var err error
	t.list, err = listTools(q.Tools)
	return t, err
}

// listTools returns the JSON of tools for a template. Parameters keep the order of their fields.
func listTools(list []tool) (json.RawMessage, error) {
	type function struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters,omitempty"`
	}
	type entry struct {
		Type     string   `json:"type"`
		Function function `json:"function"`
	}
	var entries []entry
	for _, x := range list {
		entries = append(entries, entry{"function", function{x.Function.Name, x.Function.Description, x.Function.Parameters}})
	}
	return atomicfile.MarshalJSON(entries)
}

// grammar returns the grammar of a call of one of the forced tools, in the format of the template; nil: none is forced.
func (t *toolset) grammar(c *Chat, q *chatRequest) (*grammar.Grammar, error) {
	if t.forced == nil {
		return nil, nil
	}
	before, key, behind := "", "arguments", ""
	switch {
	case c.Template.Mentions("<tool_call>"):
		before, behind = "<tool_call>\n", "\n</tool_call>"
	case c.Template.Mentions(`"parameters": `):
		key = "parameters" // Llama
	}
	var choices [][]grammar.Piece
	for i, x := range q.Tools {
		if !slices.ContainsFunc(t.forced, func(f tool) bool { return f.Function.Name == x.Function.Name }) {
			continue
		}
		schema := x.Function.Parameters
		if len(schema) == 0 || string(schema) == "null" {
			schema = json.RawMessage(`{"type":"object"}`)
		}
		choices = append(choices, []grammar.Piece{
			{Text: before + `{"name": "` + x.Function.Name + `", "` + key + `": `},
			{Schema: schema, Path: fieldName("tools", i) + ".function.parameters"}, {Text: "}" + behind}})
	}
	return newGrammar(choices...)
}

// Marks of calls in texts.
const (
	callMark, callEnd         = "<tool_call>", "</tool_call>"
	functionMark, functionEnd = "<function=", "</function>"
	listMark                  = "[TOOL_CALLS]"
	pythonMark                = "<|python_tag|>"
)

// parse returns the calls of a text, and the text before them. A text in none of the common formats, or with a call of
// no known tool, has none.
func (t *toolset) parse(text string) (before string, calls []toolCall) {
	if t.isEmpty() {
		return text, nil
	}
	rest := strings.TrimSpace(text)
	if i := strings.Index(rest, callMark); i >= 0 {
		before, rest = strings.TrimSpace(rest[:i]), rest[i:]
		for rest != "" {
			inner, ok := strings.CutPrefix(rest, callMark)
			if !ok {
				return text, nil
			}
			inner, rest, _ = strings.Cut(inner, callEnd)
			list := t.parseCalls(strings.TrimSpace(inner))
			if list == nil {
				return text, nil
			}
			calls = append(calls, list...)
			rest = strings.TrimSpace(rest)
		}
		return before, calls
	}
	if i := strings.Index(rest, functionMark); i >= 0 {
		before, rest = strings.TrimSpace(rest[:i]), rest[i:]
	}
	for _, mark := range []string{pythonMark, listMark} {
		rest = strings.TrimSpace(strings.TrimPrefix(rest, mark))
	}
	if calls = t.parseCalls(rest); calls == nil {
		return text, nil
	}
	return before, calls
}

// parseCalls returns the calls of a text that is nothing else: JSON objects or arrays of them, or functions with their
// arguments. It returns nil if it is not.
func (t *toolset) parseCalls(text string) []toolCall {
	if strings.HasPrefix(text, functionMark) {
		return t.parseFunctions(text)
	}
	if !strings.HasPrefix(text, "{") && !strings.HasPrefix(text, "[") {
		return nil
	}
	type object struct {
		Name       string          `json:"name"`
		Arguments  json.RawMessage `json:"arguments"`
		Parameters json.RawMessage `json:"parameters"`
	}
	var calls []toolCall
	for text != "" {
		d := json.NewDecoder(strings.NewReader(text))
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return nil
		}
		var list []object
		if value[0] == '{' {
			list = make([]object, 1)
			if json.Unmarshal(value, &list[0]) != nil {
				return nil
			}
		} else if json.Unmarshal(value, &list) != nil || len(list) == 0 {
			return nil
		}
		for _, x := range list {
			arguments := x.Arguments
			if arguments == nil {
				arguments = x.Parameters
			}
			var inner string
			if json.Unmarshal(arguments, &inner) == nil { // JSON in a string
				arguments = json.RawMessage(inner)
			}
			if !t.add(&calls, x.Name, arguments) {
				return nil
			}
		}
		text = strings.TrimLeft(text[d.InputOffset():], "; \n\t\r")
	}
	return calls
}

// parseFunctions returns the calls of <function=name>, with JSON or with <parameter=name>.
func (t *toolset) parseFunctions(text string) []toolCall {
	var calls []toolCall
	for text != "" {
		rest, ok := strings.CutPrefix(text, functionMark)
		if !ok {
			return nil
		}
		var name, body string
		if name, rest, ok = strings.Cut(rest, ">"); !ok {
			return nil
		}
		body, text, _ = strings.Cut(rest, functionEnd)
		body, text = strings.TrimSpace(body), strings.TrimSpace(text)
		arguments := json.RawMessage(body)
		if body == "" || strings.HasPrefix(body, "<parameter=") {
			if arguments, ok = parseParameters(body); !ok {
				return nil
			}
		}
		if !t.add(&calls, name, arguments) {
			return nil
		}
	}
	return calls
}

// parseParameters returns the object of <parameter=name>value</parameter>. A value that is JSON stays it.
func parseParameters(text string) (json.RawMessage, bool) {
	b := []byte{'{'}
	for text != "" {
		rest, ok := strings.CutPrefix(text, "<parameter=")
		if !ok {
			return nil, false
		}
		name, rest, found := strings.Cut(rest, ">")
		value, rest, ended := strings.Cut(rest, "</parameter>")
		if !found || !ended {
			return nil, false
		}
		text = strings.TrimSpace(rest)
		value = strings.TrimSuffix(strings.TrimPrefix(value, "\n"), "\n")
		if len(b) > 1 {
			b = append(b, ',')
		}
		key, err := atomicfile.MarshalJSON(name)
		if err != nil {
			return nil, false
		}
		if !json.Valid([]byte(value)) {
			quoted, err := atomicfile.MarshalJSON(value)
			if err != nil {
				return nil, false
			}
			value = string(quoted)
		}
		b = append(append(append(b, key...), ':'), value...)
	}
	return append(b, '}'), true
}

// add adds the call of a tool. It reports whether there is the tool and arguments are an object.
func (t *toolset) add(calls *[]toolCall, name string, arguments json.RawMessage) bool {
	arguments = bytes.TrimSpace(arguments)
	if arguments == nil {
		arguments = json.RawMessage("{}")
	}
	if !slices.Contains(t.names, name) || len(arguments) == 0 || arguments[0] != '{' || !json.Valid(arguments) {
		return false
	}
	*calls = append(*calls, toolCall{ID: newID("call_"), Type: "function", Function: calledByName{name, string(arguments)}})
	return true
}

// heldText is the text of a stream that may be the beginning of a call.
type heldText struct {
	tools   *toolset
	text    string
	isBegun bool // text that is no call was sent
	isHeld  bool // the rest may be a call
}

// add returns the text that can be sent after part.
func (h *heldText) add(part string) string {
	h.text += part
	if h.tools.isEmpty() {
		return h.take(len(h.text))
	}
	if h.isHeld {
		return ""
	}
	begin := strings.TrimLeft(h.text, " \n\t\r")
	if !h.isBegun && begin == "" {
		return ""
	}
	marks := []string{callMark, functionMark}
	if !h.isBegun {
		if begin[0] == '{' || begin[0] == '[' || strings.HasPrefix(begin, pythonMark) {
			h.isHeld = true
			return ""
		}
		marks = append(marks, pythonMark)
	}
	first := len(h.text)
	for _, mark := range marks {
		if i := strings.Index(h.text, mark); i >= 0 && i < first {
			first, h.isHeld = i, true
		}
	}
	if !h.isHeld {
		for _, mark := range marks {
			for n := min(len(mark)-1, len(h.text)); n > 0; n-- {
				if strings.HasSuffix(h.text, mark[:n]) {
					first = min(first, len(h.text)-n)
					break
				}
			}
		}
	}
	return h.take(first)
}

// take returns the first n bytes of the text, and keeps the rest.
func (h *heldText) take(n int) string {
	part := h.text[:n]
	h.text = h.text[n:]
	h.isBegun = h.isBegun || n > 0
	return part
}

// objectArguments returns calls of a message whose arguments are objects, as templates read them. It returns an error
// if arguments are no object.
func objectArguments(field string, calls json.RawMessage) (json.RawMessage, error) {
	var list []struct {
		ID       string `json:"id,omitempty"`
		Type     string `json:"type,omitempty"`
		Function struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
	}
	if err := json.Unmarshal(calls, &list); err != nil {
		return nil, badFieldf(field, "is %.40s, needs an array of calls", calls)
	}
	for i := range list {
		f := &list[i].Function
		where := fieldName(field, i) + ".function"
		if f.Name == "" {
			return nil, badFieldf(where+".name", "is missing")
		}
		var text string
		if json.Unmarshal(f.Arguments, &text) == nil {
			if f.Arguments = json.RawMessage(text); strings.TrimSpace(text) == "" {
				f.Arguments = json.RawMessage("{}")
			}
		}
		d := json.NewDecoder(bytes.NewReader(f.Arguments))
		var object json.RawMessage
		if err := d.Decode(&object); err != nil || object[0] != '{' {
			return nil, badFieldf(where+".arguments", "is %.40q, needs the JSON of an object", f.Arguments)
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return nil, badFieldf(where+".arguments", "there is more after the object")
		}
		f.Arguments = object
	}
	return atomicfile.MarshalJSON(list)
}
