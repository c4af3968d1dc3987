// Package sluice has the messages of the plugin's binary API. All other files are generated from
// renderer/plugin/src/sluice.api by binapi-generator v0.13.0 of GoVPP.
package sluice
