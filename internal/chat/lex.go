package chat

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// piece is a part of a template: text, an expression to print, or a statement.
type piece struct {
	kind   byte // 't', 'e' or 's'
	text   string
	tokens []lexeme
	line   int
}

// lexeme is a word of an expression.
type lexeme struct {
	kind  byte   // 'n' name, 's' string, 'i' integer, 'f' number, 'o' operator, 0 end
	text  string // name, operator, or value of a string
	value any    // of a number
}

// splitTemplate divides a template into pieces, with trim_blocks and lstrip_blocks.
func splitTemplate(source string) ([]piece, error) {
	source = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source)
	source = strings.TrimSuffix(source, "\n")
	var pieces []piece
	line, total := 1, len(source)
	trimLeft, trimLine := false, false // of the text that follows
	for len(source) > 0 {
		at := strings.Index(source, "{")
		for at >= 0 && (at+1 == len(source) || !strings.Contains("{%#", source[at+1:at+2])) {
			next := strings.Index(source[at+1:], "{")
			if next < 0 {
				at = -1
				break
			}
			at += 1 + next
		}
		text := source
		if at >= 0 {
			text = source[:at]
		}
		whole := text
		beginsLine := len(source) == total
		switch {
		case trimLeft:
			text = strings.TrimLeft(text, spaces)
			beginsLine = strings.HasSuffix(whole[:len(whole)-len(text)], "\n")
		case trimLine:
			text = strings.TrimPrefix(text, "\n")
			beginsLine = len(text) < len(whole)
		}
		if at < 0 {
			return appendText(pieces, text, line), nil
		}
		kind := source[at+1]
		mark := byte(0)
		if at+2 < len(source) {
			mark = source[at+2]
		}
		start := strings.LastIndexByte(text, '\n') + 1
		switch {
		case mark == '-':
			text = strings.TrimRight(text, spaces)
		case mark != '+' && kind != '{' && (start > 0 || beginsLine) && strings.Trim(text[start:], spaces) == "":
			text = text[:start]
		}
		pieces = appendText(pieces, text, line)
		line += strings.Count(whole, "\n")
		source = source[at+2:]
		if mark == '-' || mark == '+' {
			source = source[1:]
		}
		if kind == '#' {
			end := strings.Index(source, "#}")
			if end < 0 {
				return nil, fmt.Errorf("line %d: a comment has no end", line)
			}
			trimLeft, trimLine = end > 0 && source[end-1] == '-', true
			line += strings.Count(source[:end], "\n")
			source = source[end+2:]
			continue
		}
		closing := "%}"
		if kind == '{' {
			closing = "}}"
		}
		tokens, rest, err := lexExpression(source, closing)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		used := source[:len(source)-len(rest)]
		before := strings.TrimSuffix(used, closing)
		trimLeft, trimLine = strings.HasSuffix(before, "-"), kind == '%' && !strings.HasSuffix(before, "+")
		p := piece{kind: 's', tokens: tokens, line: line}
		if kind == '{' {
			p.kind = 'e'
		}
		pieces = append(pieces, p)
		line += strings.Count(used, "\n")
		source = rest
	}
	return pieces, nil
}

// spaces are the characters that Python's str.isspace accepts.
const spaces = " \t\n\v\f\r\x1c\x1d\x1e\x1f\u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"

// appendText appends text that is not empty.
func appendText(pieces []piece, text string, line int) []piece {
	if text == "" {
		return pieces
	}
	return append(pieces, piece{kind: 't', text: text, line: line})
}

// Limits of a tag. Words bound the depth of its expressions.
const (
	maxWords = 4096
	maxName  = 256 // bytes of a name
)

// operators of two characters come first.
var operators = []string{"==", "!=", "<=", ">=", "//", "**", "+", "-", "*", "/", "%", "~", "<", ">", "=", "(", ")", "[", "]", "{", "}", ",", ".", ":", "|"}

// lexExpression returns the words before closing and the source after it.
func lexExpression(source, closing string) (tokens []lexeme, rest string, err error) {
	depth := 0
	for {
		if len(tokens) > maxWords {
			return nil, "", fmt.Errorf("a tag has more than %d words", maxWords)
		}
		source = strings.TrimLeft(source, spaces)
		if source == "" {
			return nil, "", fmt.Errorf("a tag has no %s", closing)
		}
		if depth == 0 {
			for _, end := range []string{closing, "-" + closing, "+" + closing} {
				if strings.HasPrefix(source, end) {
					return append(tokens, lexeme{}), source[len(end):], nil
				}
			}
		}
		c := source[0]
		switch {
		case c == '"' || c == '\'':
			text, after, err := lexString(source)
			if err != nil {
				return nil, "", err
			}
			tokens, source = append(tokens, lexeme{kind: 's', text: text}), after
		case c >= '0' && c <= '9':
			t, after, err := lexNumber(source)
			if err != nil {
				return nil, "", err
			}
			tokens, source = append(tokens, t), after
		case c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
			n := 1
			for n < len(source) && (source[n] == '_' || source[n] >= 'a' && source[n] <= 'z' || source[n] >= 'A' && source[n] <= 'Z' || source[n] >= '0' && source[n] <= '9') {
				n++
			}
			if n > maxName {
				return nil, "", fmt.Errorf("a name has %d bytes, at most %d", n, maxName)
			}
			tokens, source = append(tokens, lexeme{kind: 'n', text: source[:n]}), source[n:]
		default:
			found := ""
			for _, o := range operators {
				if strings.HasPrefix(source, o) {
					found = o
					break
				}
			}
			if found == "" {
				r, _ := utf8.DecodeRuneInString(source)
				return nil, "", fmt.Errorf("%q is no operator", r)
			}
			switch found {
			case "(", "[", "{":
				depth++
			case ")", "]", "}":
				depth--
			}
			tokens, source = append(tokens, lexeme{kind: 'o', text: found}), source[len(found):]
		}
	}
}

// lexString returns the string at the beginning of source, and the source after it.
func lexString(source string) (text, rest string, err error) {
	quote := source[0]
	var b strings.Builder
	for i := 1; i < len(source); i++ {
		c := source[i]
		switch {
		case c == quote:
			return b.String(), source[i+1:], nil
		case c != '\\' || i+1 == len(source):
			b.WriteByte(c)
			continue
		}
		i++
		switch c = source[i]; c {
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case 'r':
			b.WriteByte('\r')
		case '\\', '\'', '"':
			b.WriteByte(c)
		case 'x', 'u':
			digits := map[byte]int{'x': 2, 'u': 4}[c]
			if i+digits >= len(source) {
				return "", "", fmt.Errorf("string: \\%c needs %d digits", c, digits)
			}
			x, err := strconv.ParseUint(source[i+1:i+1+digits], 16, 32)
			if err != nil {
				return "", "", fmt.Errorf("string: \\%c needs %d digits", c, digits)
			}
			b.WriteRune(rune(x))
			i += digits
		default:
			return "", "", fmt.Errorf("string: \\%c is not supported", c)
		}
	}
	return "", "", fmt.Errorf("a string has no end")
}

// lexNumber returns the number at the beginning of source, and the source after it.
func lexNumber(source string) (lexeme, string, error) {
	n := 0
	for n < len(source) && source[n] >= '0' && source[n] <= '9' {
		n++
	}
	digits := n
	if n+1 < len(source) && source[n] == '.' && source[n+1] >= '0' && source[n+1] <= '9' {
		for n++; n < len(source) && source[n] >= '0' && source[n] <= '9'; n++ {
		}
	}
	if n < len(source) && source[n]|0x20 == 'e' {
		k := n + 1
		if k < len(source) && (source[k] == '+' || source[k] == '-') {
			k++
		}
		start := k
		for k < len(source) && source[k] >= '0' && source[k] <= '9' {
			k++
		}
		if k > start {
			n = k
		}
	}
	if n > digits {
		x, err := strconv.ParseFloat(source[:n], 64)
		return lexeme{kind: 'f', value: x}, source[n:], err
	}
	x, err := strconv.ParseInt(source[:n], 10, 64)
	return lexeme{kind: 'i', value: x}, source[n:], err
}
