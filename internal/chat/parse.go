package chat

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// parser makes statements of pieces.
type parser struct {
	pieces []piece
	place  int // of the next piece
	tokens []lexeme
	depth  int
	line   int
}

// enter counts a nested construct; leave ends it.
func (p *parser) enter() error {
	if p.depth++; p.depth > maxDepth {
		return fmt.Errorf("has more than %d nested constructs", maxDepth)
	}
	return nil
}

func (p *parser) leave() { p.depth-- }

// parseBlock ends a statement, and parses its body as parseBody does.
func (p *parser) parseBlock() (body []statement, end string, err error) {
	if err := p.end(); err != nil {
		return nil, "", err
	}
	return p.parseBody()
}

// parseBody parses statements up to a statement that ends a body, such as endfor, whose words
// after its name are then next. end is its name; "": the template ends.
func (p *parser) parseBody() (body []statement, end string, err error) {
	if err := p.enter(); err != nil {
		return nil, "", err
	}
	defer p.leave()
	for p.place < len(p.pieces) {
		next := p.pieces[p.place]
		p.place++
		p.line = next.line
		switch next.kind {
		case 't':
			body = append(body, textStatement(next.text))
			continue
		case 'e':
			p.tokens = next.tokens
			e, err := p.parseWhole()
			if err != nil {
				return nil, "", err
			}
			body = append(body, located{printStatement{e}, next.line})
			continue
		}
		p.tokens = next.tokens
		name, err := p.name()
		if err != nil {
			return nil, "", err
		}
		var s statement
		switch name {
		case "if":
			s, err = p.parseIf()
		case "for":
			s, err = p.parseFor()
		case "set":
			s, err = p.parseSet()
		case "macro":
			s, err = p.parseMacro()
		case "call":
			s, err = p.parseCallBlock()
		case "with":
			s, err = p.parseWith()
		case "filter":
			s, err = p.parseFilterBlock()
		case "break", "continue":
			s, err = jumpStatement(name), p.end()
		case "generation", "endgeneration": // marks the answer for training
			err = p.end()
		case "elif", "else", "endif", "endfor", "endset", "endmacro", "endcall", "endwith", "endfilter":
			return body, name, nil
		default:
			err = fmt.Errorf("statement %s is not supported", name)
		}
		if err != nil {
			return nil, "", err
		}
		if s != nil {
			body = append(body, located{s, next.line})
		}
	}
	return body, "", nil
}

// parseIf parses the statement if after its name.
func (p *parser) parseIf() (statement, error) {
	s := &ifStatement{}
	for {
		test, err := p.parseWhole()
		if err != nil {
			return nil, err
		}
		body, end, err := p.parseBody()
		if err != nil {
			return nil, err
		}
		s.tests, s.bodies = append(s.tests, test), append(s.bodies, body)
		switch end {
		case "elif":
			continue
		case "else":
			if s.elseBody, end, err = p.parseBlock(); err != nil {
				return nil, err
			}
		}
		return s, p.close("if", "endif", end)
	}
}

// close returns an error unless a body ended with want.
func (p *parser) close(name, want, end string) error {
	if end != want {
		return fmt.Errorf("statement %s has no %s", name, want)
	}
	return p.end()
}

// parseFor parses the statement for after its name.
func (p *parser) parseFor() (statement, error) {
	s := &forStatement{}
	for {
		name, err := p.name()
		if err != nil {
			return nil, err
		}
		s.names = append(s.names, name)
		if !p.take("o", ",") {
			break
		}
	}
	if len(s.names) > maxNames {
		return nil, fmt.Errorf("statement for has %d names, at most %d", len(s.names), maxNames)
	}
	if !p.take("n", "in") {
		return nil, errors.New("statement for has no in")
	}
	var err error
	if s.list, err = p.parseOr(); err != nil {
		return nil, err
	}
	if p.take("n", "if") {
		if s.test, err = p.parseExpression(); err != nil {
			return nil, err
		}
	}
	if p.take("n", "recursive") {
		return nil, errors.New("statement for with recursive is not supported")
	}
	body, end, err := p.parseBlock()
	if err != nil {
		return nil, err
	}
	s.body = body
	if end == "else" {
		if s.elseBody, end, err = p.parseBlock(); err != nil {
			return nil, err
		}
	}
	return s, p.close("for", "endfor", end)
}

// parseSet parses the statement set after its name.
func (p *parser) parseSet() (statement, error) {
	s := &setStatement{}
	var err error
	if s.name, err = p.name(); err != nil {
		return nil, err
	}
	if p.take("o", ".") {
		if s.field, err = p.name(); err != nil {
			return nil, err
		}
	}
	for s.field == "" && p.take("o", ",") {
		name, err := p.name()
		if err != nil {
			return nil, err
		}
		if s.names = append(s.names, name); len(s.names) > maxNames {
			return nil, fmt.Errorf("statement set has more than %d names", maxNames)
		}
	}
	if p.take("o", "=") {
		s.value, err = p.parseTuple()
		return s, err
	}
	if len(s.names) > 0 {
		return nil, p.need("=")
	}
	if s.filters, err = p.parseFilters(capturedText{}); err != nil {
		return nil, err
	}
	if len(p.tokens) > 1 {
		return nil, fmt.Errorf("statement set: %q is not supported", p.tokens[0].text)
	}
	body, end, err := p.parseBody()
	if err != nil {
		return nil, err
	}
	s.body = body
	return s, p.close("set", "endset", end)
}

// maxNames bounds the names that an element of a loop, or a value, is divided into.
const maxNames = 16

// parseTuple parses an expression up to the end of a tag, or a list without brackets.
func (p *parser) parseTuple() (expression, error) {
	e, err := p.parseExpression()
	if err != nil || !p.take("o", ",") {
		return e, cmp.Or(err, p.endOf(err))
	}
	list := listExpression{e}
	for p.tokens[0].kind != 0 {
		if e, err = p.parseExpression(); err != nil {
			return nil, err
		}
		if list = append(list, e); !p.take("o", ",") {
			break
		}
	}
	return list, p.end()
}

// endOf is end unless there is an error already.
func (p *parser) endOf(err error) error {
	if err != nil {
		return err
	}
	return p.end()
}

// take takes the next word if it has the kind and text.
func (p *parser) take(kind, text string) bool {
	if p.tokens[0].kind != kind[0] || p.tokens[0].text != text {
		return false
	}
	p.tokens = p.tokens[1:]
	return true
}

// need takes an operator. It returns an error if another word is next.
func (p *parser) need(operator string) error {
	if !p.take("o", operator) {
		return fmt.Errorf("%q is missing before %s", operator, p.describe())
	}
	return nil
}

// needSeparator takes a comma, or leaves the operator that ends a list. It returns an error if
// another word is next.
func (p *parser) needSeparator(end string) error {
	if t := p.tokens[0]; p.take("o", ",") || t.kind == 'o' && t.text == end {
		return nil
	}
	return p.need(end)
}

// describe returns the next word, for messages.
func (p *parser) describe() string {
	t := p.tokens[0]
	switch t.kind {
	case 0:
		return "the end of the tag"
	case 'i', 'f':
		return fmt.Sprint(t.value)
	}
	return fmt.Sprintf("%q", t.text)
}

// name takes a name.
func (p *parser) name() (string, error) {
	t := p.tokens[0]
	if t.kind != 'n' {
		return "", fmt.Errorf("a name is missing before %s", p.describe())
	}
	p.tokens = p.tokens[1:]
	return t.text, nil
}

// end returns an error if words are left.
func (p *parser) end() error {
	if p.tokens[0].kind != 0 {
		return fmt.Errorf("%s is not expected", p.describe())
	}
	return nil
}

// parseWhole parses an expression up to the end of a tag.
func (p *parser) parseWhole() (expression, error) {
	e, err := p.parseExpression()
	if err != nil {
		return nil, err
	}
	return e, p.end()
}

// parseExpression parses an expression with an inline if.
func (p *parser) parseExpression() (expression, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	e, err := p.parseOr()
	if err != nil {
		return nil, err
	}
	for p.take("n", "if") {
		test, err := p.parseOr()
		if err != nil {
			return nil, err
		}
		c := &conditional{test: test, value1: e, value2: constant{undefined{}}}
		if p.take("n", "else") {
			if c.value2, err = p.parseExpression(); err != nil {
				return nil, err
			}
		}
		e = c
	}
	return e, nil
}

// levels are the binary operators below not, from the loosest.
var levels = [][]string{{"+", "-"}, {"~"}, {"*", "/", "//", "%"}}

func (p *parser) parseOr() (expression, error) {
	e, err := p.parseAnd()
	for err == nil && p.take("n", "or") {
		var right expression
		right, err = p.parseAnd()
		e = &logical{e, right, true}
	}
	return e, err
}

func (p *parser) parseAnd() (expression, error) {
	e, err := p.parseNot()
	for err == nil && p.take("n", "and") {
		var right expression
		right, err = p.parseNot()
		e = &logical{e, right, false}
	}
	return e, err
}

func (p *parser) parseNot() (expression, error) {
	if !p.take("n", "not") {
		return p.parseCompare()
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	e, err := p.parseNot()
	return &negation{e}, err
}

// comparisons are the operators of comparisons.
var comparisons = []string{"==", "!=", "<", "<=", ">", ">="}

func (p *parser) parseCompare() (expression, error) {
	e, err := p.parseLevel(0)
	if err != nil {
		return nil, err
	}
	var chain *comparison
	for count := 0; ; count++ {
		operator := ""
		switch t := p.tokens[0]; {
		case t.kind == 'o' && slices.Contains(comparisons, t.text):
			operator = t.text
			p.tokens = p.tokens[1:]
		case p.take("n", "in"):
			operator = "in"
		case t.kind == 'n' && t.text == "not" && p.tokens[1].kind == 'n' && p.tokens[1].text == "in":
			operator = "not in"
			p.tokens = p.tokens[2:]
		default:
			return e, nil
		}
		right, err := p.parseLevel(0)
		if err != nil {
			return nil, err
		}
		switch first := e; count {
		case 0:
			e = &binary{operator, e, right}
		case 1:
			pair, _ := first.(*binary)
			chain = &comparison{pair.first, []string{pair.operator, operator}, []expression{pair.second, right}}
			e = chain
		default:
			chain.operators, chain.values = append(chain.operators, operator), append(chain.values, right)
		}
	}
}

// parseLevel parses binary operators of a level and of tighter ones.
func (p *parser) parseLevel(level int) (expression, error) {
	if level == len(levels) {
		return p.parseUnary()
	}
	e, err := p.parseLevel(level + 1)
	for err == nil && p.tokens[0].kind == 'o' && slices.Contains(levels[level], p.tokens[0].text) {
		operator := p.tokens[0].text
		p.tokens = p.tokens[1:]
		var right expression
		right, err = p.parseLevel(level + 1)
		e = &binary{operator, e, right}
	}
	return e, err
}

// parseUnary parses an operand with its sign, filters and tests. The sign binds tightest.
func (p *parser) parseUnary() (expression, error) {
	e, err := p.parseSigned()
	if err != nil {
		return nil, err
	}
	return p.parsePostfix(e, true)
}

func (p *parser) parseSigned() (expression, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	var e expression
	var err error
	switch {
	case p.take("o", "-"):
		if e, err = p.parseSigned(); err == nil {
			e = &binary{"-", constant{int64(0)}, e}
		}
		return e, err
	case p.take("o", "+"):
		return p.parseSigned()
	}
	if e, err = p.parsePrimary(); err != nil {
		return nil, err
	}
	if e, err = p.parsePostfix(e, false); err != nil || !p.take("o", "**") {
		return e, err
	}
	right, err := p.parseSigned()
	return &binary{"**", e, right}, err
}

// constants are the values of names that Jinja reserves.
var constants = map[string]any{"true": true, "True": true, "false": false, "False": false, "none": nil, "None": nil}

func (p *parser) parsePrimary() (expression, error) {
	t := p.tokens[0]
	switch t.kind {
	case 'n':
		p.tokens = p.tokens[1:]
		if value, ok := constants[t.text]; ok {
			return constant{value}, nil
		}
		return variable(t.text), nil
	case 's':
		var text string
		for p.tokens[0].kind == 's' {
			text += p.tokens[0].text
			p.tokens = p.tokens[1:]
		}
		return constant{text}, nil
	case 'i', 'f':
		p.tokens = p.tokens[1:]
		return constant{t.value}, nil
	}
	switch {
	case p.take("o", "("):
		if p.take("o", ")") {
			return listExpression{}, nil
		}
		e, err := p.parseExpression()
		switch {
		case err != nil:
			return nil, err
		case p.take("o", ","):
			return p.parseList(listExpression{e}, ")")
		}
		return e, p.need(")")
	case p.take("o", "["):
		return p.parseList(listExpression{}, "]")
	case p.take("o", "{"):
		return p.parseDict()
	}
	return nil, fmt.Errorf("a value is missing before %s", p.describe())
}

// parseList parses further elements of a list up to its end.
func (p *parser) parseList(list listExpression, end string) (expression, error) {
	for !p.take("o", end) {
		e, err := p.parseExpression()
		if err != nil {
			return nil, err
		}
		list = append(list, e)
		if err := p.needSeparator(end); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// parseDict parses a mapping after its bracket.
func (p *parser) parseDict() (expression, error) {
	d := &dictExpression{}
	for !p.take("o", "}") {
		key, err := p.parseExpression()
		if err != nil {
			return nil, err
		}
		if err := p.need(":"); err != nil {
			return nil, err
		}
		value, err := p.parseExpression()
		if err != nil {
			return nil, err
		}
		d.keys, d.values = append(d.keys, key), append(d.values, value)
		if err := p.needSeparator("}"); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// parsePostfix parses attributes, subscripts and calls after e, and where filters is set also
// filters and tests.
func (p *parser) parsePostfix(e expression, filters bool) (expression, error) {
	for {
		var err error
		switch {
		case p.take("o", "."):
			if t := p.tokens[0]; t.kind == 'i' {
				p.tokens = p.tokens[1:]
				e = &attribute{e, constant{t.value}}
				continue
			}
			var name string
			if name, err = p.name(); err != nil {
				return nil, err
			}
			if !p.take("o", "(") {
				e = &attribute{e, constant{name}}
				continue
			}
			e, err = p.parseCall(&call{kind: 'm', name: name, owner: e})
		case p.take("o", "["):
			e, err = p.parseSubscript(e)
		case p.take("o", "("):
			name, ok := e.(variable)
			if !ok {
				return nil, errors.New("a call of a value without a name is not supported")
			}
			e, err = p.parseCall(&call{kind: 'f', name: string(name)})
		case filters && p.take("o", "|"):
			var name string
			if name, err = p.name(); err != nil {
				return nil, err
			}
			c := &call{kind: '|', name: name, owner: e}
			if e = c; p.take("o", "(") {
				e, err = p.parseCall(c)
			}
		case filters && p.take("n", "is"):
			isNot := p.take("n", "not")
			var name string
			if name, err = p.name(); err != nil {
				return nil, err
			}
			c := &call{kind: '?', name: name, owner: e}
			if e = c; p.take("o", "(") {
				e, err = p.parseCall(c)
			} else if p.beginsArgument() {
				var argument expression
				if argument, err = p.parseSigned(); err == nil {
					c.args, c.names = []expression{argument}, []string{""}
				}
			}
			if isNot {
				e = &negation{e}
			}
		default:
			return e, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// beginsArgument reports whether the argument of a test without brackets is next.
func (p *parser) beginsArgument() bool {
	t := p.tokens[0]
	switch t.kind {
	case 's', 'i', 'f':
		return true
	case 'n':
		return !slices.Contains([]string{"and", "or", "if", "else", "is", "in", "not", "recursive"}, t.text)
	}
	return t.kind == 'o' && (t.text == "[" || t.text == "{")
}

// parseSubscript parses an index or a slice of e after its bracket.
func (p *parser) parseSubscript(e expression) (expression, error) {
	var parts [3]expression
	isSlice := false
	for i := 0; ; {
		if p.take("o", "]") {
			break
		}
		if p.take("o", ":") {
			isSlice = true
			if i++; i > 2 {
				return nil, errors.New("a slice has more than three parts")
			}
			continue
		}
		if parts[i] != nil {
			return nil, p.need("]")
		}
		var err error
		if parts[i], err = p.parseExpression(); err != nil {
			return nil, err
		}
	}
	if isSlice {
		return &slice{e, parts}, nil
	}
	if parts[0] == nil {
		return nil, errors.New("a subscript is empty")
	}
	return &attribute{e, parts[0]}, nil
}

// parseCall parses the arguments of c after the bracket.
func (p *parser) parseCall(c *call) (expression, error) {
	for !p.take("o", ")") {
		name := ""
		if p.tokens[0].kind == 'n' && p.tokens[1].kind == 'o' && p.tokens[1].text == "=" {
			name = p.tokens[0].text
			p.tokens = p.tokens[2:]
		}
		e, err := p.parseExpression()
		if err != nil {
			return nil, err
		}
		c.args, c.names = append(c.args, e), append(c.names, name)
		if err := p.needSeparator(")"); err != nil {
			return nil, err
		}
	}
	return c, nil
}
