*** Settings ***
Documentation       Services and their endpoints.
Resource            ../resources/entries.resource
Resource            ../resources/netvirt.resource

Suite Setup         Begin With Nothing
Test Teardown       Remove All Entries

Test Tags           services


*** Variables ***
${SERVICE_ENTRY}    ${DRAFT02.data}/${SERVICE.container}/services/${SERVICE_UID}


*** Test Cases ***
A Service Comes And Goes In Draft-02
    [Tags]    odl
    Entry Comes And Goes    ${DRAFT02}    ${SERVICE}

A Service Comes And Goes In RFC 8040
    Entry Comes And Goes    ${RFC8040}    ${SERVICE}

Endpoints Come And Go In Draft-02
    [Tags]    odl
    Entry Comes And Goes    ${DRAFT02}    ${ENDPOINTS}

Endpoints Come And Go In RFC 8040
    Entry Comes And Goes    ${RFC8040}    ${ENDPOINTS}

A Service Can Be Sent As XML
    XML Is Taken    ${DRAFT02}    ${SERVICE}
    Request    DELETE    ${DRAFT02.data}/${SERVICE.container}    expected=200
    XML Is Taken    ${RFC8040}    ${SERVICE}

The Specification's Service Is Taken
    [Documentation]    As it is printed: a body of PUT, with the container around it.
    ${body}=    Body    specification-service.json
    Request    PUT    ${DRAFT02.data}/${SERVICE.container}    ${body}    expected=201
    ${answer}=    Request    GET    ${DRAFT02.data}/${SERVICE.container}    expected=200
    VAR    ${service}    ${answer.json()}[service-information][services][0]
    Should Be Equal    ${service}[cluster-ip-address]    5.21.5.0

Endpoints Lead To Pods
    [Documentation]    Who serves comes from the endpoints of the service's name and namespace.
    Write Pod Service And Endpoints
    ${object}=    Wanted    ${SERVICES}    ${SERVICE_UID}
    VAR    ${vip}    ${object}[vip][0]
    Should Be Equal As Strings    ${vip}[address] ${vip}[port]    ${SERVICE_ADDRESS} 80
    Should Be Equal As Strings    ${vip}[endpoint][0][address]    ${POD_ADDRESS}
    ${ports}=    Wanted    ${FLOATING}    ${NAMESPACE}
    Should Be Equal    ${ports}[ports][0][port-name]    ${NAMESPACE}:${POD_NAME}

A Service Goes With All That It Made
    Write Pod Service And Endpoints
    Wanted    ${SERVICES}    ${SERVICE_UID}
    Request    DELETE    ${SERVICE_ENTRY}    expected=200
    Gone    ${SERVICES}    ${SERVICE_UID}
    Gone    ${FLOATING}    ${NAMESPACE}
    Wanted    ${INTERFACES}    ${NAMESPACE}:${POD_NAME}


*** Keywords ***
Write Pod Service And Endpoints
    FOR    ${entity}    IN    ${POD}    ${ENDPOINTS}    ${SERVICE}
        ${body}=    Body    ${entity.body}
        Post    ${DRAFT02}    ${entity}    ${body}    204
    END
