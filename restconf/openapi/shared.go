package openapi

import "strconv"

// sharedParameters returns the parameters that several operations have.
func sharedParameters() object {
	query := func(name, description string, schema object) object {
		return object{"name": name, "in": "query", "description": description, "schema": schema}
	}
	header := func(name, description string) object {
		return object{"name": name, "in": "header", "description": description, "schema": object{"type": "string"}}
	}
	when := object{"type": "string", "format": "date-time"}
	return object{
		"content": query("content", "Configuration, state, or both (RFC 8040 section 4.8.1).",
			object{"type": "string", "enum": []string{"config", "nonconfig", "all"}, "default": "all"}),
		"depth": query("depth", "How many levels the response has; the first is the target (RFC 8040 section 4.8.2).",
			object{"oneOf": []object{{"const": "unbounded"}, {"type": "integer", "minimum": 1, "maximum": 65535}}, "default": "unbounded"}),
		"fields": query("fields", "Which parts of the target the response has, as in name;interface(ip-address) (RFC 8040 section 4.8.3).",
			object{"type": "string", "minLength": 1}),
		"with-defaults": query("with-defaults", "Which leaves with a default value the response has (RFC 8040 section 4.8.9).",
			object{"type": "string", "enum": []string{"report-all", "report-all-tagged", "trim", "explicit"}}),
		"insert": query("insert", "Where to put an entry in a list that is ordered by its users (RFC 8040 section 4.8.5).",
			object{"type": "string", "enum": []string{"first", "last", "before", "after"}, "default": "last"}),
		"point": query("point", "The entry to which insert=before and insert=after refer, as a path (RFC 8040 section 4.8.6).",
			object{"type": "string", "minLength": 1}),
		"dry-run": query("dry-run", "Check the edits of a YANG Patch as if they were made, and write nothing. Only for a YANG Patch.",
			object{"type": "string", "enum": []string{"true", "false"}}),
		"prettyPrint": query("prettyPrint", "Indent the response for people.", object{"type": "string", "enum": []string{"true", "false"}}),
		"start-time":  query("start-time", "Send the events since this time (RFC 8040 section 4.8.7).", when),
		"stop-time":   query("stop-time", "End the stream at this time; needs start-time (RFC 8040 section 4.8.8).", when),
		"filter": query("filter", "An XPath condition on the notification (RFC 8040 section 4.8.4).",
			object{"type": "string", "minLength": 1}),
		"Last-Event-ID":       header("Last-Event-ID", "Continue after the event with this id."),
		"If-Match":            header("If-Match", "Make the request only if the resource has a listed ETag."),
		"If-None-Match":       header("If-None-Match", "Make the request only if the resource has no listed ETag; \"*\": only if it does not exist."),
		"If-Modified-Since":   header("If-Modified-Since", "Send the resource only if it has changed since this time."),
		"If-Unmodified-Since": header("If-Unmodified-Since", "Make the request only if the resource has not changed since this time."),
	}
}

func sharedHeaders() object {
	text := object{"type": "string"}
	return object{
		"ETag":          object{"description": "Identifies this state of the resource.", "schema": text},
		"Last-Modified": object{"description": "When the resource last changed.", "schema": text},
		"Location":      object{"description": "The URL of the resource.", "schema": text},
	}
}

// failures describes the statuses of errors.
var failures = map[int]string{
	400: "The path, the query or the body is wrong; the error says what.",
	401: "The credentials are missing or wrong.",
	403: "The credentials do not allow the request.",
	404: "The data do not exist.",
	405: "The resource does not support this method; the error says where its data come from.",
	406: "Accept allows no media type of the response.",
	409: "The resource already exists, or is in use; nothing is written.",
	412: "A precondition does not hold; nothing is written.",
	413: "The body is too large.",
	415: "The server does not support the media type of the body.",
	503: "The datastore does not answer; the write is not acknowledged. Try again.",
}

// sharedResponses returns the responses of errors in both dialects.
func sharedResponses() object {
	out := object{}
	for _, d := range dialects {
		for status, description := range failures {
			out[d.errors+"."+strconv.Itoa(status)] = failure(d, description)
		}
		out[d.errors+".default"] = failure(d, "Any other error.")
	}
	return out
}

// failure returns the response of an error. In draft-02, errors always have the media type of
// plain JSON.
func failure(d dialect, description string) object {
	inJSON := d.json[0]
	if d.draft {
		inJSON = "application/json"
	}
	content := object{inJSON: object{"schema": ref("schemas", d.errors)}}
	for _, name := range d.xml {
		content[name] = object{"schema": ref("schemas", "errors.xml")}
	}
	return object{"description": description, "content": content}
}

// sharedSchemas returns the schemas of bodies that no module defines.
func sharedSchemas() object {
	text := object{"type": "string"}
	entry := object{
		"type": "object", "required": []string{"error-type", "error-tag"},
		"properties": object{
			"error-type": object{"type": "string", "enum": []string{"transport", "rpc", "protocol", "application"}},
			"error-tag":  text, "error-app-tag": text, "error-message": text,
			"error-path": object{"type": "string", "description": "The instance-identifier of the wrong data."},
		},
	}
	list := object{
		"type": "object", "required": []string{"error"}, "additionalProperties": false,
		"properties": object{"error": object{"type": "array", "minItems": 1, "items": ref("schemas", "error")}},
	}
	return object{
		"error": entry, "errors": list,
		"errors.xml":        object{"type": "object", "xml": object{"name": "errors", "namespace": "urn:ietf:params:xml:ns:yang:ietf-restconf"}},
		"errors.rfc8040":    only("ietf-restconf:errors", ref("schemas", "errors")),
		"errors.draft02":    only("errors", ref("schemas", "errors")),
		"yang-patch":        yangPatch(),
		"yang-patch-status": only("ietf-yang-patch:yang-patch-status", object{"type": "object", "required": []string{"patch-id"}}),
	}
}

// only returns the schema of an object with one member.
func only(name string, schema object) object {
	return object{"type": "object", "required": []string{name}, "properties": object{name: schema}, "additionalProperties": false}
}

// yangPatch returns the schema of a YANG Patch (RFC 8072).
func yangPatch() object {
	text := object{"type": "string"}
	edit := object{
		"type": "object", "required": []string{"edit-id", "operation", "target"}, "additionalProperties": false,
		"properties": object{
			"edit-id":   text,
			"operation": object{"type": "string", "enum": []string{"create", "delete", "insert", "merge", "move", "replace", "remove"}},
			"target":    object{"type": "string", "description": "A path relative to the request's target; \"/\" is the target itself."},
			"point":     text,
			"where":     object{"type": "string", "enum": []string{"before", "after", "first", "last"}},
			"value":     object{"type": "object", "description": "The new value of the target."},
		},
	}
	return only("ietf-yang-patch:yang-patch", object{
		"type": "object", "required": []string{"patch-id"}, "additionalProperties": false,
		"properties": object{"patch-id": text, "comment": text, "edit": object{"type": "array", "items": edit}},
	})
}
