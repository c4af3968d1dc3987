// Package strict reads JSON and YAML as strictly as an API server with strict field validation
// does: keys stand there once, names of fields are compared with their case, unknown fields and
// wrong types are refused, and an error names the field.
package strict
