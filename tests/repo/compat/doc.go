// Package compat tests that programs built on older protobuf modules can read what Sluice writes,
// and the reverse.
package compat
