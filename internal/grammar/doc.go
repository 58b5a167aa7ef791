// Package grammar holds drawn tokens to JSON: to any object, or to a JSON Schema.
//
// A Grammar is a pushdown automaton over bytes. A Matcher follows it through the tokens of an answer, and says which
// tokens may come next. Sets of the automaton's configurations, the set behind each byte, and the tokens that a set
// allows are computed once and kept, so that a token inside a string costs a look-up. A string that a Grammar accepts
// is valid under its schema. The opposite does not hold: objects have the properties that the schema names, in its
// order, and blanks are few. What a schema may not have is an error that names its path.
package grammar
