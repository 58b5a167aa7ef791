// Package grammar restricts drawn tokens to JSON: to any object, or to values of a JSON Schema. A
// Grammar is a pushdown automaton over bytes. A Matcher follows it along the tokens of an answer,
// and says which tokens may come next. The sets of configurations of the automaton, the set that
// follows after each byte, and the tokens that a set allows are computed once and kept, so that a
// token inside a string costs one look-up.
//
// Every string that a Grammar accepts is valid under its schema. The reverse does not hold: objects
// have the properties that the schema names, in its order, and there are few blanks. A construct
// that schemas may not have is an error that names its path.
package grammar
