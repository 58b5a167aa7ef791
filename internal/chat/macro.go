package chat

import (
	"errors"
	"fmt"
	"slices"
)

// macro is a statement that sets its name to itself, and a function of the template. It sees the
// names outside loops and its arguments.
type macro struct {
	name   string
	names  []string
	values []expression // of arguments that a call leaves out
	body   []statement
	scopes []map[string]any // that a caller sees; nil: the names outside loops
}

func (m *macro) run(r *renderer) error {
	r.scopes[len(r.scopes)-1][m.name] = m
	return nil
}

// apply returns what m writes for arguments. caller is the function caller() inside; nil: none.
func (m *macro) apply(r *renderer, args []any, names []string, caller *macro) (any, error) {
	if r.calls++; r.calls > maxDepth {
		return nil, fmt.Errorf("has more than %d nested calls", maxDepth)
	}
	defer func() { r.calls-- }()
	if err := r.spend(product(len(args), len(m.names))); err != nil {
		return nil, err
	}
	if err := r.take(objectBytes + entryBytes*len(m.names)); err != nil {
		return nil, err
	}
	scope := map[string]any{}
	for i, v := range args {
		name := names[i]
		if name == "" && i < len(m.names) {
			name = m.names[i]
		}
		if !slices.Contains(m.names, name) {
			return nil, fmt.Errorf("has %d arguments, and no %q for argument %d", len(m.names), name, i)
		}
		scope[name] = v
	}
	scopes, called := r.scopes, r.called
	defer func() { r.scopes, r.called = scopes, called }()
	r.called = nil
	seen := scopes[:1]
	if m.scopes != nil {
		seen = m.scopes
	}
	r.scopes = append(slices.Clone(seen), scope)
	if caller != nil {
		scope["caller"] = caller
	}
	for i, name := range m.names {
		if _, ok := scope[name]; !ok {
			v, err := r.value(m.values[i])
			if err != nil {
				return nil, err
			}
			scope[name] = v
		}
	}
	return r.capture(m.body)
}

// parseMacro parses the statement macro after its name.
func (p *parser) parseMacro() (statement, error) {
	m := &macro{}
	var err error
	if m.name, err = p.name(); err != nil {
		return nil, err
	}
	if err := p.need("("); err != nil {
		return nil, err
	}
	if m.names, m.values, err = p.parseParameters(); err != nil {
		return nil, err
	}
	body, end, err := p.parseBlock()
	if err != nil {
		return nil, err
	}
	m.body = body
	return m, p.close("macro", "endmacro", end)
}

// parseParameters parses the parameters of a macro after the bracket, with the values of arguments that
// a call leaves out.
func (p *parser) parseParameters() (names []string, values []expression, err error) {
	for !p.take("o", ")") {
		name, err := p.name()
		if err != nil {
			return nil, nil, err
		}
		var value expression = constant{undefined{}}
		if p.take("o", "=") {
			if value, err = p.parseExpression(); err != nil {
				return nil, nil, err
			}
		}
		names, values = append(names, name), append(values, value)
		if err := p.needSeparator(")"); err != nil {
			return nil, nil, err
		}
	}
	return names, values, nil
}

// jumpStatement is break or continue.
type jumpStatement string

// Errors that end the body of a loop.
var (
	errBreak    = errors.New("break is outside a loop")
	errContinue = errors.New("continue is outside a loop")
)

func (s jumpStatement) run(*renderer) error {
	if s == "break" {
		return errBreak
	}
	return errContinue
}
