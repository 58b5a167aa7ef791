package chat

import "errors"

// withStatement runs a body with names of its own.
type withStatement struct {
	names  []string
	values []expression
	body   []statement
}

func (s *withStatement) run(r *renderer) error {
	if err := r.take(objectBytes + entryBytes*len(s.names)); err != nil {
		return err
	}
	scope := map[string]any{}
	for i, name := range s.names {
		v, err := r.value(s.values[i])
		if err != nil {
			return err
		}
		scope[name] = v
	}
	r.scopes = append(r.scopes, scope)
	defer func() { r.scopes = r.scopes[:len(r.scopes)-1] }()
	return r.run(s.body)
}

// parseWith parses the statement with after its name.
func (p *parser) parseWith() (statement, error) {
	s := &withStatement{}
	for p.tokens[0].kind != 0 {
		name, err := p.name()
		if err != nil {
			return nil, err
		}
		if err := p.need("="); err != nil {
			return nil, err
		}
		value, err := p.parseExpression()
		if err != nil {
			return nil, err
		}
		s.names, s.values = append(s.names, name), append(s.values, value)
		if !p.take("o", ",") {
			break
		}
	}
	body, end, err := p.parseBlock()
	if err != nil {
		return nil, err
	}
	s.body = body
	return s, p.close("with", "endwith", end)
}

// capturedText is the text that a body has written, for filters.
type capturedText struct{}

func (capturedText) value(r *renderer) (any, error) { return r.captured, nil }

// captureFiltered returns what statements write, through filters of capturedText unless they are nil.
func (r *renderer) captureFiltered(body []statement, filters expression) (any, error) {
	text, err := r.capture(body)
	if err != nil || filters == nil {
		return text, err
	}
	outer := r.captured
	r.captured = text
	defer func() { r.captured = outer }()
	return r.value(filters)
}

// filterStatement writes what a body writes through filters.
type filterStatement struct {
	body    []statement
	filters expression
}

func (s *filterStatement) run(r *renderer) error {
	v, err := r.captureFiltered(s.body, s.filters)
	if err != nil {
		return err
	}
	text, err := r.format(v)
	if err != nil {
		return err
	}
	return r.write(text)
}

// parseFilterBlock parses the statement filter after its name.
func (p *parser) parseFilterBlock() (statement, error) {
	s := &filterStatement{}
	var err error
	if s.filters, err = p.parseFilter(capturedText{}); err != nil {
		return nil, err
	}
	if s.filters, err = p.parseFilters(s.filters); err != nil {
		return nil, err
	}
	body, end, err := p.parseBlock()
	if err != nil {
		return nil, err
	}
	s.body = body
	return s, p.close("filter", "endfilter", end)
}

// parseFilter parses a filter of e after its operator.
func (p *parser) parseFilter(e expression) (expression, error) {
	name, err := p.name()
	if err != nil {
		return nil, err
	}
	c := &call{kind: '|', name: name, owner: e}
	if p.take("o", "(") {
		return p.parseCall(c)
	}
	return c, nil
}

// parseFilters parses filters of e.
func (p *parser) parseFilters(e expression) (expression, error) {
	for p.take("o", "|") {
		var err error
		if e, err = p.parseFilter(e); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// callStatement calls a macro, in which caller() gives the body.
type callStatement struct {
	called expression
	names  []string // arguments of caller
	values []expression
	body   []statement
}

func (s *callStatement) run(r *renderer) error {
	called, caller := r.called, r.caller
	r.called, _ = s.called.(*call)
	r.caller = &macro{name: "caller", names: s.names, values: s.values, body: s.body, scopes: append([]map[string]any{}, r.scopes...)}
	v, err := r.value(s.called)
	r.called, r.caller = called, caller
	if err != nil {
		return err
	}
	text, err := r.format(v)
	if err != nil {
		return err
	}
	return r.write(text)
}

// parseCallBlock parses the statement call after its name.
func (p *parser) parseCallBlock() (statement, error) {
	s := &callStatement{}
	var err error
	if p.take("o", "(") {
		if s.names, s.values, err = p.parseParameters(); err != nil {
			return nil, err
		}
	}
	if s.called, err = p.parseExpression(); err != nil {
		return nil, err
	}
	if c, ok := s.called.(*call); !ok || c.kind != 'f' {
		return nil, errors.New("statement call needs a call of a macro")
	}
	body, end, err := p.parseBlock()
	if err != nil {
		return nil, err
	}
	s.body = body
	return s, p.close("call", "endcall", end)
}

// comparison is a chain such as a < b < c.
type comparison struct {
	first     expression
	operators []string
	values    []expression
}

func (e *comparison) value(r *renderer) (any, error) {
	left, err := r.value(e.first)
	if err != nil {
		return nil, err
	}
	for i, operator := range e.operators {
		right, err := r.value(e.values[i])
		if err != nil {
			return nil, err
		}
		v, err := (&binary{operator, constant{left}, constant{right}}).value(r)
		if err != nil || !isTrue(v) {
			return v, err
		}
		left = right
	}
	return true, nil
}
