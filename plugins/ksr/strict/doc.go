// Package strict reads JSON and YAML as strictly as an API server with strict field validation
// does: it rejects duplicate keys, unknown fields and wrong types, compares field names
// case-sensitively, and its errors name the field.
package strict
