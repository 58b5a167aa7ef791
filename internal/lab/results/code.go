package results

import (
	"go/scanner"
	"go/token"
	"strings"
)

// code is what a Go file computes by: its tokens behind the package clause, and its
// directives. Comments are not of it, so that a file of comments alone has none.
func code(src []byte) (list []string) {
	fset := token.NewFileSet()
	var s scanner.Scanner
	s.Init(fset.AddFile("", -1, len(src)), src, nil, scanner.ScanComments)
	clause := 3 // package, its name, the end of the line
	for {
		_, kind, text := s.Scan()
		switch {
		case kind == token.EOF:
			return list
		case kind == token.COMMENT:
			if strings.HasPrefix(text, "//go:") {
				list = append(list, text)
			}
		case clause > 0:
			clause--
		case kind.IsLiteral():
			list = append(list, strings.ReplaceAll(text, formerFolder, folder))
		default:
			list = append(list, kind.String())
		}
	}
}
