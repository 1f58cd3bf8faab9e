package serve

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// constraintFields say what a text may be.
type constraintFields struct {
	ResponseFormat jsontext.Value `json:"response_format"`
	Grammar        *string        `json:"grammar"`
}

// constrain fills a request in. What cannot be kept is refused, never left out.
func (f *constraintFields) constrain(s *Server, r *Request) error {
	if f.Grammar != nil {
		return badField("grammar", "not supported")
	}
	if len(f.ResponseFormat) == 0 || f.ResponseFormat.Kind() == 'n' {
		return nil
	}
	var format struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(f.ResponseFormat, &format, json.RejectUnknownMembers(true)); err != nil || format.Type != "text" {
		return badField("response_format", "want {\"type\": \"text\"}")
	}
	return nil
}
