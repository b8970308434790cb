package openapi

import "strconv"

// sharedParameters are the parameters that many operations have.
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
		"depth": query("depth", "How many levels are answered; the first is the target (RFC 8040 section 4.8.2).",
			object{"oneOf": []object{{"const": "unbounded"}, {"type": "integer", "minimum": 1, "maximum": 65535}}, "default": "unbounded"}),
		"fields": query("fields", "What is answered of the target, as in name;interface(ip-address) (RFC 8040 section 4.8.3).",
			object{"type": "string", "minLength": 1}),
		"with-defaults": query("with-defaults", "How leaves with their default are answered (RFC 8040 section 4.8.9).",
			object{"type": "string", "enum": []string{"report-all", "report-all-tagged", "trim", "explicit"}}),
		"insert": query("insert", "Where an entry is put in a list that its users order (RFC 8040 section 4.8.5).",
			object{"type": "string", "enum": []string{"first", "last", "before", "after"}, "default": "last"}),
		"point": query("point", "The entry that insert=before and insert=after mean, as a path (RFC 8040 section 4.8.6).",
			object{"type": "string", "minLength": 1}),
		"dry-run": query("dry-run", "Judge the edits of a YANG Patch as if they were made, and write nothing. Of a YANG Patch alone.",
			object{"type": "string", "enum": []string{"true", "false"}}),
		"prettyPrint": query("prettyPrint", "Lay out the answer for people.", object{"type": "string", "enum": []string{"true", "false"}}),
		"start-time":  query("start-time", "Tell what has happened since then (RFC 8040 section 4.8.7).", when),
		"stop-time":   query("stop-time", "End then; needs start-time (RFC 8040 section 4.8.8).", when),
		"filter": query("filter", "An XPath condition on the notification (RFC 8040 section 4.8.4).",
			object{"type": "string", "minLength": 1}),
		"Last-Event-ID":       header("Last-Event-ID", "Go on after the event of this id."),
		"If-Match":            header("If-Match", "Do it only to what has one of these ETags."),
		"If-None-Match":       header("If-None-Match", "Do it only to what has none of these ETags; \"*\": only where there is nothing."),
		"If-Modified-Since":   header("If-Modified-Since", "Answer only what has changed since then."),
		"If-Unmodified-Since": header("If-Unmodified-Since", "Do it only to what has not changed since then."),
	}
}

func sharedHeaders() object {
	text := object{"type": "string"}
	return object{
		"ETag":          object{"description": "Names this state of the resource.", "schema": text},
		"Last-Modified": object{"description": "When it last changed.", "schema": text},
		"Location":      object{"description": "Where it is.", "schema": text},
	}
}

// failures are the statuses of errors and what they say.
var failures = map[int]string{
	400: "The path, the query or the body is wrong; the error says what.",
	401: "The credentials are missing or wrong.",
	403: "The credentials don't allow it.",
	404: "There is no such data.",
	405: "The resource does not have this method; the error says where its data come from.",
	406: "Accept allows no media type of the answer.",
	409: "It exists already, or is in use; nothing is written.",
	412: "A precondition does not hold; nothing is written.",
	413: "The body is too large.",
	415: "The body's media type is not understood.",
	503: "The datastore does not answer; nothing is acknowledged. Try again.",
}

// sharedResponses are the errors, as either dialect writes them.
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

// failure is an error. Draft-02 answers those in plain JSON, whatever JSON was asked for.
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

// sharedSchemas are the schemas of what is in no module.
func sharedSchemas() object {
	text := object{"type": "string"}
	entry := object{
		"type": "object", "required": []string{"error-type", "error-tag"},
		"properties": object{
			"error-type": object{"type": "string", "enum": []string{"transport", "rpc", "protocol", "application"}},
			"error-tag":  text, "error-app-tag": text, "error-message": text,
			"error-path": object{"type": "string", "description": "The instance-identifier of what is wrong."},
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

// only is an object with one member.
func only(name string, schema object) object {
	return object{"type": "object", "required": []string{name}, "properties": object{name: schema}, "additionalProperties": false}
}

// yangPatch is the body of RFC 8072.
func yangPatch() object {
	text := object{"type": "string"}
	edit := object{
		"type": "object", "required": []string{"edit-id", "operation", "target"}, "additionalProperties": false,
		"properties": object{
			"edit-id":   text,
			"operation": object{"type": "string", "enum": []string{"create", "delete", "insert", "merge", "move", "replace", "remove"}},
			"target":    object{"type": "string", "description": "A path below the request's; \"/\" is the request's target."},
			"point":     text,
			"where":     object{"type": "string", "enum": []string{"before", "after", "first", "last"}},
			"value":     object{"type": "object", "description": "The target as it is to be."},
		},
	}
	return only("ietf-yang-patch:yang-patch", object{
		"type": "object", "required": []string{"patch-id"}, "additionalProperties": false,
		"properties": object{"patch-id": text, "comment": text, "edit": object{"type": "array", "items": edit}},
	})
}
