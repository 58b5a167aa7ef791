// Package contract holds the types of calls: what a mechanism gets, returns and keeps, and
// the interfaces of mechanisms and states. Package attention names them for callers.
package contract
